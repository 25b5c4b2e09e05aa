//! Tables of the kinds of an operation: one row for each kind.

/// Makes an enum from rows of variant, printed name, accepted dtypes and, for elementwise operations, class; with `ALL`,
/// `name`, `named`, `takes` and `class` made from the same rows, so that a kind cannot be missing in one of them.
macro_rules! kinds {
    (
        $(#[$doc:meta])*
        $type:ident {
            $($(#[$note:meta])* $variant:ident $name:literal $accepts:ident $($class:ident)?;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs, reason = "variants are what their names say")]
        pub enum $type {
            $($(#[$note])* $variant,)*
        }

        impl $type {
            /// Every variant, in declaration order.
            pub const ALL: [$type; [$($name),*].len()] = [$($type::$variant),*];

            /// The name that programs print for an operation of this kind.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }

            /// The kind whose operation programs print with this name.
            pub(crate) fn named(name: &str) -> Option<$type> {
                $type::ALL.into_iter().find(|kind| kind.name() == name)
            }

            /// Whether operands may have this dtype.
            pub fn takes(self, dtype: $crate::DType) -> bool {
                self.accepts().takes(dtype)
            }

            /// The dtypes of the operands.
            const fn accepts(self) -> $crate::ops::rules::Accepts {
                match self {
                    $($type::$variant => $crate::ops::rules::Accepts::$accepts,)*
                }
            }

            kinds!(@class $type $($variant $($class)?,)*);
        }
    };
    (@class $type:ident $($variant:ident,)*) => {};
    (@class $type:ident $($variant:ident $class:ident,)*) => {
        /// What kind of work the operation is.
        pub const fn class(self) -> $crate::Class {
            match self {
                $($type::$variant => $crate::Class::$class,)*
            }
        }
    };
}

pub(super) use kinds;
