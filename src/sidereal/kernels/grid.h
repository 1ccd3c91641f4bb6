#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// Moving elements by tables of offsets, one table per dimension: what mirroring, rolling and
/// tiling have in common.
namespace sidereal::kernels {

/// The points of a dense array, row-major, and for each the offset of another array's elements: the
/// sum of one number per dimension. Each point is a run of elements.
/// Value type, to be kept from run to run: reset() keeps its memory.
class Grid {
 public:
  /// Forgets all; a point is `run` elements in a row.
  void reset(int64_t run);
  /// Adds a dimension, innermost last, and returns its table to be filled: the offset, in elements,
  /// of each of its `extent` indices. Good until the next call.
  std::span<int64_t> add_dimension(int64_t extent);

  [[nodiscard]] int64_t run() const { return run_; }
  [[nodiscard]] int64_t num_points() const;

  /// Calls f(offset) for every point in order.
  template <class F>
  void for_each(F f) const {
    if (num_points() > 0) visit(0, 0, f);
  }

 private:
  struct Dimension {
    size_t first;
    int64_t extent;
  };

  template <class F>
  void visit(size_t d, int64_t offset, F& f) const {
    if (d == dimensions_.size()) return f(offset);
    const Dimension& dimension = dimensions_[d];
    const int64_t* table = tables_.data() + dimension.first;
    for (int64_t i = 0; i < dimension.extent; ++i) visit(d + 1, offset + table[i], f);
  }

  int64_t run_ = 1;
  std::vector<Dimension> dimensions_;
  std::vector<int64_t> tables_;
};

/// to[point] = from[offset of the point], elements of `bytes` bytes.
void gather_grid(const std::byte* from, const Grid& grid, int64_t bytes, std::byte* to);

/// to[offset of the point] += from[point], in the order of the points. T is any dtype of numbers.
template <class T>
void scatter_add_grid(const T* from, const Grid& grid, T* to);

}  // namespace sidereal::kernels
