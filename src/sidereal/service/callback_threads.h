#pragma once

///
namespace sidereal::service {

/// Keeps gRPC's threads for callbacks for the rest of the process. They end when nobody uses them,
/// and gRPC 1.51 aborts now and then when that happens while others begin to ("assertion failed:
/// prior > 0" in a nexting_thread). To be called before channels and servers are made. Thread: any.
void keep_callback_threads();

}  // namespace sidereal::service
