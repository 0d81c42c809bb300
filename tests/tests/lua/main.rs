//! Envoy's Lua filter on the wire: the same scripts, the same answers. `POSTRIDER_BIN=envoy` shows that they are Envoy's.

mod bodies;
mod calls;
mod choices;
mod handles;
mod messages;
mod odd;
mod scopes;
mod scripts;
mod site;
mod traces;
mod workers;
