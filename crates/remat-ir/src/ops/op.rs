//! One row for each operation: its name, its class, and the names under which programs print its fields.

/// Makes `name`, `class`, `params` and `parse` of an operation in its `impl Operation`.
///
/// ```text
/// op! { "broadcast_in_dim" class View { dims: broadcast_dimensions, shape } }
/// ```
///
/// The fields are in the order in which programs print them. A field prints under its own name or the one after the colon, as its type says
/// ([`ParamValue`](super::values::ParamValue)). `(lhs, rhs): numbers` are fields that print as one parameter, as the tuple of their types
/// says, and `..window` is a field that prints as several parameters ([`ParamGroup`](super::values::ParamGroup)).
///
/// With `kind ReduceKind` instead of a name, the name is that of the field `kind`; `op! { self }` is for an operation that is a kind itself.
/// Without `class` the operation has its own. `op! { group { .. } }` makes the methods of a [`ParamGroup`](super::values::ParamGroup).
macro_rules! op {
    ($name:literal $(class $class:ident)? $({ $($rows:tt)* })?) => {
        fn name(&self) -> &'static str {
            $name
        }

        $(op! { @class $class })?

        fn params(&self) -> $crate::Params {
            op!(@print self $($($rows)*)?,).collect()
        }

        fn parse(name: &str, params: &$crate::ParamMap<'_>) -> Option<$crate::Result<Self>> {
            (name == $name).then(|| op!(@read params [] $($($rows)*)?,))
        }
    };
    (kind $kind:ident $(class $class:ident)? { $($rows:tt)* }) => {
        fn name(&self) -> &'static str {
            self.kind.name()
        }

        $(op! { @class $class })?

        fn params(&self) -> $crate::Params {
            op!(@print self $($rows)*,).collect()
        }

        fn parse(name: &str, params: &$crate::ParamMap<'_>) -> Option<$crate::Result<Self>> {
            let kind = $kind::named(name)?;
            let read = || op!(@read params [kind] $($rows)*,);
            Some(read())
        }
    };
    (self) => {
        fn name(&self) -> &'static str {
            Self::name(*self)
        }

        fn class(&self) -> $crate::Class {
            Self::class(*self)
        }

        fn params(&self) -> $crate::Params {
            $crate::Params::new()
        }

        fn parse(name: &str, _: &$crate::ParamMap<'_>) -> Option<$crate::Result<Self>> {
            Self::named(name).map(Ok)
        }
    };
    (group { $($rows:tt)* }) => {
        fn to_params(&self) -> $crate::Params {
            op!(@print self $($rows)*,).collect()
        }

        fn take(params: &$crate::ParamMap<'_>) -> $crate::Result<Self> {
            op!(@read params [] $($rows)*,)
        }
    };

    (@class $class:ident) => {
        fn class(&self) -> $crate::Class {
            $crate::Class::$class
        }
    };

    // An iterator over the parameters of these rows.
    (@print $self:ident $(,)?) => { std::iter::empty() };
    (@print $self:ident $field:ident, $($rest:tt)*) => { op!(@print $self $field: $field, $($rest)*) };
    (@print $self:ident $field:ident: $printed:ident, $($rest:tt)*) => {
        $crate::ops::values::named(stringify!($printed), &$self.$field).chain(op!(@print $self $($rest)*))
    };
    (@print $self:ident ($($field:ident),+ $(,)?): $printed:ident, $($rest:tt)*) => {
        $crate::ops::values::named(stringify!($printed), &($(Clone::clone(&$self.$field),)+))
            .chain(op!(@print $self $($rest)*))
    };
    (@print $self:ident ..$field:ident, $($rest:tt)*) => {
        $crate::ops::values::ParamGroup::to_params(&$self.$field).into_iter().chain(op!(@print $self $($rest)*))
    };

    // Takes the parameters of these rows; the fields in brackets are known.
    (@read $params:ident [$($known:ident)*] $(,)?) => {{
        // An operation without parameters takes none.
        let _ = $params;
        Ok(Self { $($known),* })
    }};
    (@read $params:ident [$($known:ident)*] $field:ident, $($rest:tt)*) => {
        op!(@read $params [$($known)*] $field: $field, $($rest)*)
    };
    (@read $params:ident [$($known:ident)*] $field:ident: $printed:ident, $($rest:tt)*) => {{
        let $field = $params.read(stringify!($printed))?;
        op!(@read $params [$($known)* $field] $($rest)*)
    }};
    (@read $params:ident [$($known:ident)*] ($($field:ident),+ $(,)?): $printed:ident, $($rest:tt)*) => {{
        let ($($field,)+) = $params.read(stringify!($printed))?;
        op!(@read $params [$($known)* $($field)+] $($rest)*)
    }};
    (@read $params:ident [$($known:ident)*] ..$field:ident, $($rest:tt)*) => {{
        let $field = $crate::ops::values::ParamGroup::take($params)?;
        op!(@read $params [$($known)* $field] $($rest)*)
    }};
}

pub(super) use op;
