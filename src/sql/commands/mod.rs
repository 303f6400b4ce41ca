//! The commands, one file each: its name, its parameters, its columns, and the call into the layers above.

mod version;

use super::Command;

/// Every command of fdl.
pub const COMMANDS: [&Command; 1] = [&version::COMMAND];
