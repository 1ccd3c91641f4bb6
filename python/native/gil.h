#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

/// The lock of the interpreter, as nanobind's guards have it, but for threads that are still there
/// when Python is at its end: CPython before 3.14 ends one that comes for the lock then with
/// pthread_exit(), which unwinds, and ends the process where it meets what must not be unwound.
/// Here it stands still, as since 3.14: the process is about to end.
namespace sidereal::python {

[[noreturn]] inline void stand_still() {
  for (;;) ::pause();
}

/// What `take()` gives, which takes the lock.
template <class Take>
auto take_gil(Take take) {
  try {
    return take();
  } catch (const abi::__forced_unwind&) {
    stand_still();
  }
}

/// Other threads run Python while it lives.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() {
    take_gil([this] { PyEval_RestoreThread(state_); });
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* const state_;
};

/// This thread, which may be any, runs Python while it lives.
class GilAcquired {
 public:
  GilAcquired() : state_(take_gil([] { return ensure(); })) {}
  ~GilAcquired() { PyGILState_Release(state_); }
  GilAcquired(const GilAcquired&) = delete;
  GilAcquired& operator=(const GilAcquired&) = delete;

 private:
  static PyGILState_STATE ensure() {
    // There may be no interpreter that a thread which Python has not seen could be made known to.
    if (Py_IsInitialized() == 0 && PyGILState_GetThisThreadState() == nullptr) stand_still();
    return PyGILState_Ensure();
  }

  const PyGILState_STATE state_;
};

/// What `work()` gives; other threads run Python meanwhile. It must touch no Python objects.
template <class Work>
auto without_gil(Work work) {
  const GilReleased released;
  return work();
}

}  // namespace sidereal::python
