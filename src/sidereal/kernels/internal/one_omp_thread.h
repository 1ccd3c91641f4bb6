#pragma once

// Of the OpenMP run time that oneDNN is built on; <omp.h> would tie us to one compiler's.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
}

namespace sidereal::kernels::internal {

/// Holds the calling thread's OpenMP teams at one thread: a lane is one core.
class OneOmpThread {
 public:
  OneOmpThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneOmpThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneOmpThread(const OneOmpThread&) = delete;
  OneOmpThread& operator=(const OneOmpThread&) = delete;

 private:
  int before_;
};

}  // namespace sidereal::kernels::internal
