//! Enumerations whose values have a name in texts.

/// Makes enumerations. Each value has one name, which texts and serde use. The first two identifiers name two
/// functions: one returns a value's name, the other returns the value of a name.
#[doc(hidden)]
#[macro_export]
macro_rules! named {
    ($text:ident, $read:ident: $($(#[$of:meta])* pub enum $name:ident { $($(#[$doc:meta])* $value:ident = $written:literal,)+ })+) => {
        $($(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $written)] $value,)+ }

        impl $name {
            /// All values, in their order.
            pub const ALL: [Self; [$($written),+].len()] = [$(Self::$value),+];

            /// Returns the name of the value.
            pub const fn $text(self) -> &'static str {
                match self {
                    $(Self::$value => $written,)+
                }
            }

            /// Returns the value with this name; case matters.
            pub fn $read(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.$text() == name)
            }
        })+
    };
}
