#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sidereal/kernels/shard_layout.h"

/// The steps of a sharded embedding lookup: unique, route, gather; and of its gradient. T is float
/// or double.
namespace sidereal::kernels {

/// What a negative id is for unique(): nothing, or an id like others, which no table has.
enum class NegativeIds { kNone, kIds };

/// Memory of unique(), kept from call to call so that nothing is allocated or cleared per call.
/// Thread: core-local.
class UniqueScratch {
 public:
  UniqueScratch() = default;

 private:
  friend int64_t unique(std::span<const int64_t> ids, UniqueScratch& scratch, int64_t* unique_ids,
                        int32_t* inverse, NegativeIds negative);
  struct Slot {
    int64_t id;
    uint32_t generation;
    int32_t position;
  };
  void prepare(size_t ids);

  std::vector<Slot> slots_;
  uint32_t generation_ = 0;
};

/// Writes the distinct ids in the order they first appear to `unique_ids` (room for ids.size()) and
/// the place of ids[i] among them to inverse[i]. With kNone a negative id gets inverse -1 and is
/// not among the unique ids. At most 2^30 ids. Returns the number of unique ids.
int64_t unique(std::span<const int64_t> ids, UniqueScratch& scratch, int64_t* unique_ids,
               int32_t* inverse, NegativeIds negative = NegativeIds::kNone);

/// Where a unique id went: `shard << kPositionShift | index` within the shard's rows.
inline constexpr int kPositionShift = 40;

/// Splits ids (rows of a table) by the shard that owns them, keeping their order within a shard.
///
/// rows:     [ids.size()], local row numbers, those of shard 0 first, then of shard 1, ...
/// offsets:  [shards + 1]; the rows of shard s are rows[offsets[s] .. offsets[s + 1]).
/// position: [ids.size()], the packed place of each id (see kPositionShift).
/// Returns -1, or the index of the first id outside [0, layout.rows()); the outputs are then
/// undefined.
int64_t route(std::span<const int64_t> ids, const ShardLayout& layout, int64_t* rows,
              int64_t* offsets, int64_t* position);

/// The index of the first of `position` that route() would not have made for shards of rows[s]
/// rows: those of a shard count up from 0. position.size() when a shard has rows that none names,
/// -1 when all is well: then gather_parts(), find_in_parts() and sum_parts() stay inside the parts,
/// and sum_parts() leaves no row out. `next` is memory.
int64_t find_bad_position(std::span<const int64_t> position, std::span<const int64_t> rows,
                          std::vector<int64_t>& next);

/// The index of the first of `inverse` that is no place among `ids` unique ids, or -1. With `first`
/// those that unique() would not have made count too: each id first appears after those before it,
/// and all appear (inverse.size() when one does not).
int64_t find_bad_place(std::span<const int32_t> inverse, int64_t ids, bool first);

/// out[i] = the row of width `dim` that parts[shard] holds at the position of inverse[i]; a row of
/// zeros where inverse[i] is -1. parts[s] is [rows of s, dim] and may be null when s has no row.
template <class T>
void gather_parts(std::span<const T* const> parts, std::span<const int64_t> position,
                  std::span<const int32_t> inverse, int64_t dim, T* out);

/// The places of the rows that gather_parts copies; `zeros`, `dim` of them, where it writes zeros.
void find_in_parts(std::span<const float* const> parts, std::span<const int64_t> position,
                   std::span<const int32_t> inverse, int64_t dim, const float* zeros,
                   std::span<const float*> places);

/// The gradient of gather_parts: sums the rows of grad, `stride` apart, that belong to one unique
/// id, in index order, into parts[shard] at its position. `inverse` must be what unique() made
/// (first occurrences in order): the first row of an id is stored, later ones are added, so the
/// parts need no clearing.
template <class T>
void sum_parts(const T* grad, int64_t stride, std::span<const int64_t> position,
               std::span<const int32_t> inverse, int64_t dim, std::span<T* const> parts);

/// Rows of gradients that lie `stride` numbers apart: columns of wider rows. T: float, double.
template <class T>
struct GradRows {
  const T* from = nullptr;
  int64_t stride = 0;
  int64_t count = 0;
};

/// Where the sum of the rows of each distinct id is. The rows are those of `sources`, one source
/// after the other; `inverse` is what unique() made of their ids, none of them negative.
/// sum_of[id] becomes the row itself where an id has only one, else a row of `sums`, which has room
/// for min(distinct ids, inverse.size() - distinct ids) rows of `dim`. Rows are added in their
/// order.
template <class T>
void sum_equal_rows(std::span<const GradRows<T>> sources, std::span<const int32_t> inverse,
                    int64_t dim, T* sums, std::span<const T*> sum_of);

/// out[i] = table[rows[i] * stride .. + dim). The rows must be inside the table.
template <class T>
void gather_rows(const T* table, int64_t stride, std::span<const int64_t> rows, int64_t dim,
                 T* out);

/// table[rows[i] * stride .. + dim) = in[i]. The rows must be inside the table; with duplicates the
/// last one stays.
template <class T>
void scatter_rows(const T* in, std::span<const int64_t> rows, int64_t dim, T* table,
                  int64_t stride);

/// The index of the first row outside [0, count), or -1 when all are inside. Vectorised.
int64_t find_out_of_range(std::span<const int64_t> rows, int64_t count);

}  // namespace sidereal::kernels
