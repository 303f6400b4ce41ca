//! The kinds of requests a store answers, for the wrappers that count them and make them fail.

/// A method of [`Store`](super::Store).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// [`Store::get`](super::Store::get)
    Get,
    /// [`Store::get_range`](super::Store::get_range)
    GetRange,
    /// [`Store::download`](super::Store::download)
    Download,
    /// [`Store::head`](super::Store::head)
    Head,
    /// [`Store::settle`](super::Store::settle)
    Settle,
    /// [`Store::list`](super::Store::list)
    List,
    /// [`Store::sweep`](super::Store::sweep)
    Sweep,
    /// [`Store::put`](super::Store::put)
    Put,
    /// [`Store::put_if_absent`](super::Store::put_if_absent)
    PutIfAbsent,
    /// [`Store::put_if_unchanged`](super::Store::put_if_unchanged)
    PutIfUnchanged,
    /// [`Store::delete`](super::Store::delete)
    Delete,
    /// [`Store::delete_if_unchanged`](super::Store::delete_if_unchanged)
    DeleteIfUnchanged,
}

impl Verb {
    /// Whether the request changes what readers see. `Settle` does not, it only makes durable what is
    /// there; nor does `Sweep`, which removes what nobody sees.
    #[must_use]
    pub fn is_write(self) -> bool {
        match self {
            Self::Put | Self::PutIfAbsent | Self::PutIfUnchanged | Self::Delete | Self::DeleteIfUnchanged => true,
            Self::Get | Self::GetRange | Self::Download | Self::Head | Self::Settle | Self::List | Self::Sweep => false,
        }
    }

    /// Whether the request writes on a condition, so that its answer can be `Refused`.
    #[must_use]
    pub fn is_conditional(self) -> bool {
        matches!(self, Self::PutIfAbsent | Self::PutIfUnchanged | Self::DeleteIfUnchanged)
    }

    /// The verb that an error message uses: `read`, `write`, `list` or `delete`.
    #[must_use]
    pub fn action(self) -> &'static str {
        match self {
            Self::Get | Self::GetRange | Self::Download | Self::Head => "read",
            Self::Put | Self::PutIfAbsent | Self::PutIfUnchanged | Self::Settle => "write",
            Self::List => "list",
            Self::Delete | Self::DeleteIfUnchanged | Self::Sweep => "delete",
        }
    }
}
