//! Methods that set public fields: `AdamW::new(3e-4).weight_decay(0.1)`.

/// Methods that consume a value and set one of its fields. Each line has the name of a method, the type of its argument, and the field.
macro_rules! setters {
    ($of:ident: $($name:ident($given:ty) => $($field:ident).+;)*) => {
        impl $of {
            $(
                #[doc = concat!("The same with this `", stringify!($name), "`, as the field describes it.")]
                #[must_use]
                pub fn $name(mut self, $name: $given) -> $of {
                    self.$($field).+ = $name.into();
                    self
                }
            )*
        }
    };
}

pub(crate) use setters;
