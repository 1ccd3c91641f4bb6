#include "sidereal/kernels/sparse.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>

#include "absl/container/inlined_vector.h"
#include "sidereal/base/check.h"
#include "sidereal/kernels/internal/constant.h"
#include "sidereal/kernels/internal/divider.h"
#include "sidereal/kernels/internal/vec_math.h"

namespace sidereal::kernels {
namespace {

// How many ids or rows ahead of the work a prefetch is sent out. Rows are fetched into the second
// level cache: it has about three times the outstanding misses of the first, and those are what
// bounds a random walk over a table (measured: 73 -> 94 million rows of 64 bytes per second).
constexpr int64_t kAheadSlots = 16;
constexpr int64_t kAheadRows = 64;

inline size_t home_slot(int64_t id, int shift) {
  return static_cast<size_t>((static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15ULL) >> shift);
}

inline int32_t shard_of(int64_t position) {
  return static_cast<int32_t>(position >> kPositionShift);
}
inline int64_t index_of(int64_t position) {
  return position & ((int64_t{1} << kPositionShift) - 1);
}
inline int64_t pack(int64_t shard, int64_t index) { return shard << kPositionShift | index; }

/// The usual widths of rows are known to the compiler.
template <class Body>
void with_dim(int64_t dim, Body body) {
  internal::with_constant<1, 4, 8, 16, 32, 64>(dim, body);
}

template <int64_t kDim, class T>
inline void copy_row(const T* from, int64_t dim, T* to) {
  std::memcpy(to, from, (kDim > 0 ? kDim : dim) * sizeof(T));
}

template <int64_t kDim, class T>
inline void add_row(const T* from, int64_t dim, T* to) {
  const int64_t n = kDim > 0 ? kDim : dim;
  SR_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) to[j] += from[j];
}

template <int64_t kDim, class T>
inline void prefetch_row(const T* row, int64_t dim) {
  const int64_t bytes = (kDim > 0 ? kDim : dim) * static_cast<int64_t>(sizeof(T));
  const char* at = reinterpret_cast<const char*>(row);
  for (int64_t i = 0; i < std::min<int64_t>(bytes, 512); i += 64) __builtin_prefetch(at + i, 0, 2);
}

// One task of a layout, with its divisions prepared.
struct TaskSplit {
  int64_t first_row;
  int32_t first_shard;
  internal::Divider lanes;
};

// Counts rows per shard in offsets[shard + 1] and leaves `shard, local row` packed in position.
// The ids are in range.
void locate_all(std::span<const int64_t> ids, const ShardLayout& layout, int64_t* offsets,
                int64_t* position) {
  const int64_t rows = layout.rows();
  const auto n = static_cast<int64_t>(ids.size());
  absl::InlinedVector<TaskSplit, 16> tasks;
  for (int32_t t = 0; t < layout.num_tasks(); ++t) {
    tasks.push_back(
        {layout.first_row(t), layout.shard_of(t, 0), internal::Divider(layout.num_lanes(t))});
  }
  if (layout.num_tasks() == 1) {
    const internal::Divider lanes = tasks[0].lanes;
    for (int64_t i = 0; i < n; ++i) {
      int64_t lane = 0;
      const int64_t local = lanes.divide(ids[i], &lane);
      ++offsets[lane + 1];
      position[i] = pack(lane, local);
    }
    return;
  }
  const int64_t base = rows / layout.num_tasks();
  const int64_t extra = rows % layout.num_tasks();
  const int64_t in_longer = extra * (base + 1);
  const internal::Divider longer(base + 1);
  const internal::Divider shorter(std::max<int64_t>(base, 1));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t id = ids[i];
    int64_t rest = 0;
    const int64_t task =
        id < in_longer ? longer.divide(id, &rest) : extra + shorter.divide(id - in_longer, &rest);
    const TaskSplit& split = tasks[task];
    int64_t lane = 0;
    const int64_t local = split.lanes.divide(rest, &lane);
    const int64_t shard = split.first_shard + lane;
    ++offsets[shard + 1];
    position[i] = pack(shard, local);
  }
}

}  // namespace

void UniqueScratch::prepare(size_t ids) {
  // At most half full, so runs stay short.
  const size_t wanted = std::bit_ceil(std::max<size_t>(2 * ids, 64));
  if (slots_.size() < wanted) {
    slots_.assign(wanted, Slot{0, 0, 0});
    generation_ = 0;
  }
  if (generation_ == std::numeric_limits<uint32_t>::max()) {
    std::fill(slots_.begin(), slots_.end(), Slot{0, 0, 0});
    generation_ = 0;
  }
  ++generation_;
}

int64_t unique(std::span<const int64_t> ids, UniqueScratch& scratch, int64_t* unique_ids,
               int32_t* inverse, NegativeIds negative) {
  SR_CHECK(ids.size() <= (size_t{1} << 30), "unique of {} ids", ids.size());
  const auto n = static_cast<int64_t>(ids.size());
  scratch.prepare(ids.size());
  // A large table left over from a larger call is used only as far as this call needs.
  const size_t capacity = std::bit_ceil(std::max<size_t>(2 * ids.size(), 64));
  const size_t mask = capacity - 1;
  const int shift = 64 - std::countr_zero(capacity);
  UniqueScratch::Slot* slots = scratch.slots_.data();
  const uint32_t generation = scratch.generation_;
  int32_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAheadSlots < n) __builtin_prefetch(&slots[home_slot(ids[i + kAheadSlots], shift)], 1);
    const int64_t id = ids[i];
    if (id < 0 && negative == NegativeIds::kNone) [[unlikely]] {
      inverse[i] = -1;
      continue;
    }
    size_t at = home_slot(id, shift);
    while (true) {
      UniqueScratch::Slot& slot = slots[at];
      if (slot.generation != generation) {
        slot = {id, generation, count};
        unique_ids[count] = id;
        inverse[i] = count++;
        break;
      }
      if (slot.id == id) {
        inverse[i] = slot.position;
        break;
      }
      at = (at + 1) & mask;
    }
  }
  return count;
}

int64_t find_out_of_range(std::span<const int64_t> rows, int64_t count) {
  const auto n = static_cast<int64_t>(rows.size());
  const auto limit = static_cast<uint64_t>(count);
  constexpr int64_t kBlock = 1024;
  for (int64_t from = 0; from < n; from += kBlock) {
    const int64_t to = std::min(from + kBlock, n);
    uint64_t bad = 0;
    // A negative row is a huge unsigned one.
    for (int64_t i = from; i < to; ++i) bad |= static_cast<uint64_t>(rows[i]) >= limit ? 1 : 0;
    if (bad != 0) {
      for (int64_t i = from; i < to; ++i) {
        if (static_cast<uint64_t>(rows[i]) >= limit) return i;
      }
    }
  }
  return -1;
}

int64_t route(std::span<const int64_t> ids, const ShardLayout& layout, int64_t* rows,
              int64_t* offsets, int64_t* position) {
  const auto n = static_cast<int64_t>(ids.size());
  const int32_t shards = layout.num_shards();
  const int64_t bad = find_out_of_range(ids, layout.rows());
  if (bad >= 0) return bad;
  if (shards == 1) {
    if (n > 0) std::memcpy(rows, ids.data(), n * sizeof(int64_t));
    for (int64_t i = 0; i < n; ++i) position[i] = i;
    offsets[0] = 0;
    offsets[1] = n;
    return -1;
  }
  std::fill_n(offsets, shards + 1, 0);
  locate_all(ids, layout, offsets, position);
  absl::InlinedVector<int64_t, 64> next(shards);
  for (int32_t s = 0; s < shards; ++s) {
    offsets[s + 1] += offsets[s];
    next[s] = offsets[s];
  }
  for (int64_t i = 0; i < n; ++i) {
    const int32_t shard = shard_of(position[i]);
    const int64_t at = next[shard]++;
    rows[at] = index_of(position[i]);
    position[i] = pack(shard, at - offsets[shard]);
  }
  return -1;
}

int64_t find_bad_position(std::span<const int64_t> position, std::span<const int64_t> rows,
                          std::vector<int64_t>& next) {
  next.assign(rows.size(), 0);
  for (size_t i = 0; i < position.size(); ++i) {
    const int64_t shard = position[i] >> kPositionShift;
    if (shard < 0 || shard >= static_cast<int64_t>(rows.size()) ||
        index_of(position[i]) != next[shard] || next[shard] == rows[shard]) [[unlikely]] {
      return static_cast<int64_t>(i);
    }
    ++next[shard];
  }
  const bool all = std::equal(next.begin(), next.end(), rows.begin());
  return all ? -1 : static_cast<int64_t>(position.size());
}

int64_t find_bad_place(std::span<const int32_t> inverse, int64_t ids, bool first) {
  int64_t seen = first ? 0 : ids;
  for (size_t i = 0; i < inverse.size(); ++i) {
    if (inverse[i] < seen) [[likely]]
      continue;
    if (inverse[i] > seen || seen == ids) [[unlikely]]
      return static_cast<int64_t>(i);
    ++seen;
  }
  return seen == ids ? -1 : static_cast<int64_t>(inverse.size());
}

template <class T>
void gather_parts(std::span<const T* const> parts, std::span<const int64_t> position,
                  std::span<const int32_t> inverse, int64_t dim, T* out) {
  const auto n = static_cast<int64_t>(inverse.size());
  with_dim(dim, [&](auto tag) {
    constexpr int64_t kDim = decltype(tag)::value;
    const int64_t width = kDim > 0 ? kDim : dim;
    for (int64_t i = 0; i < n; ++i) {
      T* to = out + i * width;
      if (inverse[i] < 0) [[unlikely]] {
        std::memset(to, 0, width * sizeof(T));
        continue;
      }
      const int64_t p = position[inverse[i]];
      copy_row<kDim>(parts[shard_of(p)] + index_of(p) * width, width, to);
    }
  });
}

template <class T>
void sum_parts(const T* grad, int64_t stride, std::span<const int64_t> position,
               std::span<const int32_t> inverse, int64_t dim, std::span<T* const> parts) {
  const auto n = static_cast<int64_t>(inverse.size());
  with_dim(dim, [&](auto tag) {
    constexpr int64_t kDim = decltype(tag)::value;
    const int64_t width = kDim > 0 ? kDim : dim;
    int32_t seen = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int32_t id = inverse[i];
      if (id < 0) [[unlikely]]
        continue;
      const int64_t p = position[id];
      T* to = parts[shard_of(p)] + index_of(p) * width;
      if (id == seen) {
        copy_row<kDim>(grad + i * stride, width, to);
        ++seen;
      } else {
        SR_DCHECK(id < seen, "inverse[{}] is {} before {} was seen", i, id, seen);
        add_row<kDim>(grad + i * stride, width, to);
      }
    }
  });
}

void find_in_parts(std::span<const float* const> parts, std::span<const int64_t> position,
                   std::span<const int32_t> inverse, int64_t dim, const float* zeros,
                   std::span<const float*> places) {
  for (size_t i = 0; i < inverse.size(); ++i) {
    if (inverse[i] < 0) [[unlikely]] {
      places[i] = zeros;
      continue;
    }
    const int64_t p = position[inverse[i]];
    places[i] = parts[shard_of(p)] + index_of(p) * dim;
  }
}

template <class T>
void sum_equal_rows(std::span<const GradRows<T>> sources, std::span<const int32_t> inverse,
                    int64_t dim, T* sums, std::span<const T*> sum_of) {
  with_dim(dim, [&](auto tag) {
    constexpr int64_t kDim = decltype(tag)::value;
    const int64_t width = kDim > 0 ? kDim : dim;
    // The second row of an id is where its sum begins: the sums lie in that order.
    const std::less<const T*> before;
    T* next = sums;
    int32_t seen = 0;
    size_t i = 0;
    for (const GradRows<T>& source : sources) {
      const T* row = source.from;
      for (int64_t k = 0; k < source.count; ++k, ++i, row += source.stride) {
        const int32_t id = inverse[i];
        if (id == seen) {
          sum_of[seen++] = row;
          continue;
        }
        const T* sum = sum_of[id];
        const bool is_begun = !before(sum, sums) && before(sum, next);
        T* to = is_begun ? sums + (sum - sums) : next;
        if (!is_begun) {
          copy_row<kDim>(sum, width, to);
          sum_of[id] = to;
          next += width;
        }
        add_row<kDim>(row, width, to);
      }
    }
  });
}

template void sum_equal_rows(std::span<const GradRows<float>>, std::span<const int32_t>, int64_t,
                             float*, std::span<const float*>);
template void sum_equal_rows(std::span<const GradRows<double>>, std::span<const int32_t>, int64_t,
                             double*, std::span<const double*>);

template <class T>
void gather_rows(const T* table, int64_t stride, std::span<const int64_t> rows, int64_t dim,
                 T* out) {
  const auto n = static_cast<int64_t>(rows.size());
  with_dim(dim, [&](auto tag) {
    constexpr int64_t kDim = decltype(tag)::value;
    const int64_t width = kDim > 0 ? kDim : dim;
    const int64_t warm = std::max<int64_t>(0, n - kAheadRows);
    for (int64_t i = 0; i < n - warm; ++i) prefetch_row<kDim>(table + rows[i] * stride, width);
    int64_t i = 0;
    for (; i < warm; ++i) {
      prefetch_row<kDim>(table + rows[i + kAheadRows] * stride, width);
      copy_row<kDim>(table + rows[i] * stride, width, out + i * width);
    }
    for (; i < n; ++i) copy_row<kDim>(table + rows[i] * stride, width, out + i * width);
  });
}

template <class T>
void scatter_rows(const T* in, std::span<const int64_t> rows, int64_t dim, T* table,
                  int64_t stride) {
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(table + rows[i] * stride, in + static_cast<int64_t>(i) * dim, dim * sizeof(T));
  }
}

#define SR_INSTANTIATE(T)                                                                        \
  template void gather_parts(std::span<const T* const>, std::span<const int64_t>,                \
                             std::span<const int32_t>, int64_t, T*);                             \
  template void sum_parts(const T*, int64_t, std::span<const int64_t>, std::span<const int32_t>, \
                          int64_t, std::span<T* const>);                                         \
  template void gather_rows(const T*, int64_t, std::span<const int64_t>, int64_t, T*);           \
  template void scatter_rows(const T*, std::span<const int64_t>, int64_t, T*, int64_t);
SR_INSTANTIATE(float)
SR_INSTANTIATE(double)
#undef SR_INSTANTIATE

}  // namespace sidereal::kernels
