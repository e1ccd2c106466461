//! `wire!`: both conversions of a message from one list of its fields.
//!
//! ```text
//! wire! {
//!     ToolsLayer = v1::ToolsLayer, checked by layer_size { digest: digest, url: text, other_urls, size_bytes }
//!     Welcome = v1::Welcome { epoch, time: moment, heartbeat_interval: span, others, ..versions: v1::Versions { software, protocol } }
//! }
//! ```
//! On the left stands the type of landfall-api, on the right that of the wire. A field is one of
//! - `epoch`: the same on both sides;
//! - `time: moment`: the codec `moment` turns the one into the other (`codec.rs` has those of all messages, a file those of its
//!   own);
//! - `counts_from: millis_if_any(counts_from_ms)`: and it has another name on the wire.
//!
//! `..versions: v1::Versions { .. }`, at the end: the wire has these fields in a message of their own, landfall-api has them
//! among the others. An absent message is an empty one. `checked by f`: `f(&wire)` may refuse the message before any field is
//! looked at. `without f`: the field `f` of landfall-api does not travel, and has its default on the other side.
//!
//! The fields are checked in the order of the list, and the first that is wrong is the error, under its name on the wire. A
//! field that stands on either side and not in the list does not compile. What fits no such list is converted by hand.

macro_rules! wire {
    ($($api:ident = $m:ident::$wire:ident $(, checked by $check:ident)? $(, without $none:ident)? {
        $($fields:tt)*
    })+) => {
        $(wire! { @fields [$api $m $wire [$($check)?] $($none)?] [] [] $($fields)* , })+
    };
    // One by one the fields become `here codec wire`. The second list has those of the inner message, and is the first until
    // that comes: `[the outer fields] [the fields up to now] what is left`.
    (@fields $head:tt $outer:tt [$($all:tt)*] $f:ident: $codec:ident($w:ident), $($rest:tt)*) => {
        wire! { @fields $head $outer [$($all)* $f $codec $w,] $($rest)* }
    };
    (@fields $head:tt $outer:tt [$($all:tt)*] $f:ident: $codec:ident, $($rest:tt)*) => {
        wire! { @fields $head $outer [$($all)* $f $codec $f,] $($rest)* }
    };
    (@fields $head:tt $outer:tt [$($all:tt)*] $f:ident, $($rest:tt)*) => {
        wire! { @fields $head $outer [$($all)* $f same $f,] $($rest)* }
    };
    (@fields $head:tt [] $all:tt ..$g:ident: $m:ident::$inner:ident { $($fields:tt)* } $($rest:tt)*) => {
        wire! { @fields $head [$all $g $m $inner] [] $($fields)* , }
    };
    (@fields $head:tt [] $all:tt $(,)?) => { wire! { @impl $head $all } };
    (@fields $head:tt [$outer:tt $g:ident $m:ident $inner:ident] $all:tt $(,)?) => {
        wire! { @impl $head $outer $g $m $inner $all }
    };
    (@impl [$api:ident $m:ident $wire:ident [$($check:ident)?] $($none:ident)?] [$($f:ident $codec:ident $w:ident,)*]
        $($g:ident $gm:ident $inner:ident [$($gf:ident $gcodec:ident $gw:ident,)*])?) => {
        impl TryFrom<$m::$wire> for $api {
            type Error = $crate::ConvertError;

            fn try_from(wire: $m::$wire) -> Result<Self, $crate::ConvertError> {
                $($check(&wire)?;)?
                let $m::$wire { $($w,)* $($g)? } = wire;
                $(let $gm::$inner { $($gw),* } = $g.unwrap_or_default();)?
                Ok(Self {
                    $($f: $codec::from(stringify!($w), $w)?,)*
                    $($($gf: $gcodec::from(concat!(stringify!($g), ".", stringify!($gw)), $gw)?,)*)?
                    $($none: Default::default(),)?
                })
            }
        }

        impl From<$api> for $m::$wire {
            fn from(message: $api) -> Self {
                let $api { $($f,)* $($($gf,)*)? $($none: _)? } = message;
                Self { $($w: $codec::to($f),)* $($g: Some($gm::$inner { $($gw: $gcodec::to($gf)),* }))? }
            }
        }
    };
}
