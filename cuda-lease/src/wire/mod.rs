//! Frames and messages: the bytes that clients and nodes exchange.
