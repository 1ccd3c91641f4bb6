#pragma once

namespace sidereal::cli {

/// From here on the first Ctrl-C (SIGINT) or SIGTERM only makes interrupted() true, so that
/// everything can stop in order; the second one kills this process. For main().
void catch_interrupts();

/// True once a signal has come. Thread: any.
bool interrupted();

/// The first signal that came: SIGINT or SIGTERM; 0: none has. Thread: any.
int interrupting_signal();

}  // namespace sidereal::cli
