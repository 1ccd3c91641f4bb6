#include "sidereal/kernels/grid.h"

#include <cstring>

#include "sidereal/kernels/internal/accumulate.h"

namespace sidereal::kernels {

void Grid::reset(int64_t run) {
  run_ = run;
  dimensions_.clear();
  tables_.clear();
}

std::span<int64_t> Grid::add_dimension(int64_t extent) {
  const size_t first = tables_.size();
  tables_.resize(first + extent);
  dimensions_.push_back({first, extent});
  return {tables_.data() + first, static_cast<size_t>(extent)};
}

int64_t Grid::num_points() const {
  int64_t count = 1;
  for (const Dimension& dimension : dimensions_) count *= dimension.extent;
  return count;
}

void gather_grid(const std::byte* from, const Grid& grid, int64_t bytes, std::byte* to) {
  const int64_t run = grid.run() * bytes;
  if (run == 0) return;
  if (run == 4) {
    grid.for_each([&](int64_t offset) {
      std::memcpy(to, from + offset * bytes, 4);
      to += 4;
    });
    return;
  }
  grid.for_each([&](int64_t offset) {
    std::memcpy(to, from + offset * bytes, run);
    to += run;
  });
}

template <class T>
void scatter_add_grid(const T* from, const Grid& grid, T* to) {
  const int64_t run = grid.run();
  grid.for_each([&](int64_t offset) {
    internal::add_row(from, run, to + offset);
    from += run;
  });
}

#define SR_INSTANTIATE(T) template void scatter_add_grid<T>(const T*, const Grid&, T*);
SR_FOR_EACH_NUMBER(SR_INSTANTIATE)
#undef SR_INSTANTIATE

}  // namespace sidereal::kernels
