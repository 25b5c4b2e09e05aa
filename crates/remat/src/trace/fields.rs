//! Constructors and setters of optimizers.
//!
//! The fields of an optimizer are public, and these methods set them: `AdamW::new(3e-4).weight_decay(0.1)`.

/// The constructor of an optimizer with this field as its learning rate.
macro_rules! of_rate {
    ($of:ident: $($rate:ident).+) => {
        impl $of {
            /// The default with this learning rate: a number, a [`Schedule`](crate::optim::Schedule), or a scalar tensor.
            #[must_use]
            pub fn new(learning_rate: impl Into<$crate::optim::Schedule>) -> $of {
                let mut optimizer = $of::default();
                optimizer.$($rate).+ = learning_rate.into();
                optimizer
            }
        }
    };
}

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

pub(crate) use {of_rate, setters};
