#include <nanobind/nanobind.h>

#include "bindings.h"
#include "sidereal/security/listener.h"

NB_MODULE(_native, m) {
  m.doc() = "The C++ side of sidereal. Use the package `sidereal`, which is documented.";
  // The engine and the values that programs keep live as long as the interpreter.
  nanobind::set_leak_warnings(false);
  sidereal::security::log_less_of_grpc();
  m.attr("__version__") = SIDEREAL_VERSION;
  sidereal::python::bind_cluster(m);
  sidereal::python::bind_events(m);
  sidereal::python::bind_crash_report(m);
  sidereal::python::bind_eager(m);
  sidereal::python::bind_follower(m);
  sidereal::python::bind_trace(m);
  sidereal::python::bind_control(m);
  sidereal::python::bind_dataset(m);
  sidereal::python::bind_serving(m);
  sidereal::python::bind_sessions(m);
  sidereal::python::bind_coordinator(m);
  sidereal::python::bind_loops(m);
  sidereal::python::bind_moves(m);
  sidereal::python::bind_tape(m);
  sidereal::python::bind_variable(m);
  sidereal::python::bind_inspect(m);
  sidereal::python::bind_saved_model(m);
  sidereal::python::bind_checkpoint(m);
  sidereal::python::bind_graph(m);
  sidereal::python::bind_training(m);
}
