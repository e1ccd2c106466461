//! The agents' gRPC service over the engine.
