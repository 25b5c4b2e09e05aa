//! Finds floats that JSON cannot represent, before they are written.

use std::fmt::{self, Display};

use serde::Serialize;
use serde::ser::{self, Serializer};

/// Checks that all floats of a value are finite.
///
/// # Errors
/// If one is not: the error names it.
pub(super) fn check<T: Serialize>(value: &T) -> Result<(), NotFinite> {
    value.serialize(Floats)
}

/// The path of a float that is not finite, as fields, keys and indices from the outermost, and a message about it.
#[derive(Debug)]
pub(super) struct NotFinite {
    path: String,
    what: String,
}

impl NotFinite {
    fn inside(self, outer: &dyn Display) -> NotFinite {
        let path = if self.path.is_empty() { outer.to_string() } else { format!("{outer}.{}", self.path) };
        NotFinite { path, ..self }
    }
}

impl Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.what) } else { write!(f, "`{}` {}", self.path, self.what) }
    }
}

impl std::error::Error for NotFinite {}

impl ser::Error for NotFinite {
    fn custom<T: Display>(message: T) -> NotFinite {
        NotFinite { path: String::new(), what: message.to_string() }
    }
}

type Checked<T = ()> = Result<T, NotFinite>;

/// A serializer that writes nothing.
struct Floats;

/// The parts of a value: the index of the next, or its key.
#[derive(Default)]
struct Parts {
    index: usize,
    key: String,
}

/// Visits a part with this name.
fn part<T: Serialize + ?Sized>(name: &dyn Display, value: &T) -> Checked {
    value.serialize(Floats).map_err(|error| error.inside(name))
}

/// The methods of values without parts and floats.
macro_rules! without_floats {
    ($($method:ident($($argument:ty),*);)*) => {
        $(fn $method(self, $(_: $argument),*) -> Checked {
            Ok(())
        })*
    };
}

/// The methods of values with parts.
macro_rules! with_parts {
    ($($method:ident($($argument:ty),*);)*) => {
        $(fn $method(self, $(_: $argument),*) -> Checked<Parts> {
            Ok(Parts::default())
        })*
    };
}

impl Serializer for Floats {
    type Ok = ();
    type Error = NotFinite;
    type SerializeSeq = Parts;
    type SerializeTuple = Parts;
    type SerializeTupleStruct = Parts;
    type SerializeTupleVariant = Parts;
    type SerializeMap = Parts;
    type SerializeStruct = Parts;
    type SerializeStructVariant = Parts;

    without_floats! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    with_parts! {
        serialize_seq(Option<usize>);
        serialize_tuple(usize);
        serialize_tuple_struct(&'static str, usize);
        serialize_tuple_variant(&'static str, u32, &'static str, usize);
        serialize_map(Option<usize>);
        serialize_struct(&'static str, usize);
        serialize_struct_variant(&'static str, u32, &'static str, usize);
    }

    fn serialize_f32(self, value: f32) -> Checked {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Checked {
        if value.is_finite() { Ok(()) } else { Err(ser::Error::custom(format_args!("is {value}"))) }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Checked {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Checked {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Checked {
        part(&variant, value)
    }
}

/// Values whose parts have indices.
macro_rules! by_index {
    ($($of:ident: $method:ident;)*) => {
        $(impl ser::$of for Parts {
            type Ok = ();
            type Error = NotFinite;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Checked {
                part(&self.index, value)?;
                self.index += 1;
                Ok(())
            }

            fn end(self) -> Checked {
                Ok(())
            }
        })*
    };
}

by_index! {
    SerializeSeq: serialize_element;
    SerializeTuple: serialize_element;
    SerializeTupleStruct: serialize_field;
    SerializeTupleVariant: serialize_field;
}

/// Values whose parts are fields.
macro_rules! by_field {
    ($($of:ident)*) => {
        $(impl ser::$of for Parts {
            type Ok = ();
            type Error = NotFinite;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Checked {
                part(&name, value)
            }

            fn end(self) -> Checked {
                Ok(())
            }
        })*
    };
}

by_field!(SerializeStruct SerializeStructVariant);

impl ser::SerializeMap for Parts {
    type Ok = ();
    type Error = NotFinite;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Checked {
        // Keys are strings, or numbers that become strings.
        self.key = serde_json::to_string(key).unwrap_or_default().trim_matches('"').to_string();
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Checked {
        part(&self.key, value)
    }

    fn end(self) -> Checked {
        Ok(())
    }
}
