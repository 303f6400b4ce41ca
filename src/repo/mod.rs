//! What is done to a repository through a store.
