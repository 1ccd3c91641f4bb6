#include "sidereal/ckpt/slice.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "sidereal/base/check.h"
#include "sidereal/base/strings.h"

namespace sidereal::ckpt {
namespace {

using base::invalid_argument;
using tensor::Shape;

constexpr size_t kRankMax = 32;

/// The product, or nothing when it is no int64.
std::optional<int64_t> product(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

/// Where two ranges of one dimension meet: `count` places, each of them `from_step` and `to_step`
/// further in the two than the one before.
struct Meeting {
  int64_t from = 0;
  int64_t to = 0;
  int64_t count = 0;
  int64_t from_step = 1;
  int64_t to_step = 1;
};

/// The x in [0, m) with a * x = 1 modulo m; a and m have no common divisor.
int64_t inverse(int64_t a, int64_t m) {
  __int128 r0 = m, r1 = a % m, x0 = 0, x1 = 1;
  while (r1 > 1) {
    const __int128 q = r0 / r1;
    std::swap(r0, r1);
    r1 -= q * r0;
    std::swap(x0, x1);
    x1 -= q * x0;
  }
  return m == 1 ? 0 : static_cast<int64_t>((x1 % m + m) % m);
}

Meeting meet(const Range& a, const Range& b) {
  if (a.count == 0 || b.count == 0) return {};
  const int64_t divisor = std::gcd(a.step, b.step);
  if ((b.start - a.start) % divisor != 0) return {};
  // The first index of a that is one of b's, or would be if b had no end and no begin: a.start +
  // k * a.step with k the smallest that leaves the remainder of b's.
  const int64_t modulus = b.step / divisor;
  const int64_t distance = (b.start - a.start) / divisor % modulus;
  const __int128 k =
      static_cast<__int128>(distance + modulus) % modulus * inverse(a.step / divisor, modulus);
  __int128 first = a.start + (k % modulus) * a.step;
  const __int128 step = static_cast<__int128>(a.step) * modulus;
  if (first < b.start) first += (b.start - first + step - 1) / step * step;
  const __int128 last = std::min(a.start + static_cast<__int128>(a.count - 1) * a.step,
                                 b.start + static_cast<__int128>(b.count - 1) * b.step);
  if (first > last) return {};
  return {.from = static_cast<int64_t>((first - a.start) / a.step),
          .to = static_cast<int64_t>((first - b.start) / b.step),
          .count = static_cast<int64_t>((last - first) / step + 1),
          .from_step = static_cast<int64_t>(step / a.step),
          .to_step = static_cast<int64_t>(step / b.step)};
}

Result<Range> parse_range(std::string_view text, int64_t extent) {
  if (text == "-") return Range{.start = 0, .count = extent};
  const auto parts = base::split(text, ',');
  if (parts.size() < 2 || parts.size() > 3) {
    return invalid_argument("'{}' is neither '-' nor START,COUNT nor START,COUNT,STEP", text);
  }
  Range range;
  SR_ASSIGN_OR_RETURN(range.start, base::parse_int(parts[0]));
  SR_ASSIGN_OR_RETURN(range.count, base::parse_int(parts[1]));
  if (parts.size() == 3) {
    SR_ASSIGN_OR_RETURN(range.step, base::parse_int(parts[2]));
    // Equal ranges are written in one way.
    if (range.count <= 1 && range.step > 0) range.step = 1;
  }
  return range;
}

Result<SliceOfShape> parse_parts(std::string_view text) {
  const auto parts = base::split(text, ' ');
  SliceOfShape out;
  if (parts.size() > kRankMax + 1) return invalid_argument("it has too many dimensions");
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    SR_ASSIGN_OR_RETURN(const int64_t extent, base::parse_int(parts[i]));
    out.whole.append(extent);
  }
  if (out.whole.rank() == 0) return invalid_argument("it has no extents");
  const auto ranges = base::split(parts.back(), ':');
  if (ranges.size() != static_cast<size_t>(out.whole.rank())) {
    return invalid_argument("it has {} extents and {} ranges", out.whole.rank(), ranges.size());
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    SR_ASSIGN_OR_RETURN(out.slice.emplace_back(),
                        parse_range(ranges[i], out.whole.dim(static_cast<int>(i))));
  }
  SR_RETURN_IF_ERROR(check_slice(out.slice, out.whole));
  return out;
}

/// Dimensions in which the ranges meet, outermost first, the last of which are one run.
struct Walk {
  std::vector<Meeting> loops;
  std::vector<int64_t> from_strides;
  std::vector<int64_t> to_strides;
  int64_t run = 1;
  bool is_empty = false;
};

Walk walk_of(const Slice& from, const Slice& to) {
  Walk walk;
  int64_t from_stride = 1;
  int64_t to_stride = 1;
  bool joined = true;  // All further in have been one run, which both have in full.
  int64_t run_from = 0;
  int64_t run_to = 0;
  for (size_t i = from.size(); i-- > 0;) {
    const Meeting meeting = meet(from[i], to[i]);
    if (meeting.count == 0) {
      walk.is_empty = true;
      return walk;
    }
    if (joined && meeting.from_step == 1 && meeting.to_step == 1) {
      run_from += meeting.from * from_stride;
      run_to += meeting.to * to_stride;
      joined = meeting.count == from[i].count && meeting.count == to[i].count;
      walk.run *= meeting.count;
    } else {
      joined = false;
      walk.loops.push_back(meeting);
      walk.from_strides.push_back(from_stride);
      walk.to_strides.push_back(to_stride);
    }
    from_stride *= from[i].count;
    to_stride *= to[i].count;
  }
  // Where the run begins is the innermost loop's.
  walk.loops.insert(walk.loops.begin(), Meeting{.from = run_from, .to = run_to, .count = 1});
  walk.from_strides.insert(walk.from_strides.begin(), 1);
  walk.to_strides.insert(walk.to_strides.begin(), 1);
  std::reverse(walk.loops.begin(), walk.loops.end());
  std::reverse(walk.from_strides.begin(), walk.from_strides.end());
  std::reverse(walk.to_strides.begin(), walk.to_strides.end());
  return walk;
}

}  // namespace

Slice whole_slice(const Shape& shape) {
  Slice slice;
  for (const int64_t extent : shape.dims()) slice.push_back({.start = 0, .count = extent});
  return slice;
}

bool is_whole(const Slice& slice, const Shape& whole) { return slice == whole_slice(whole); }

Shape shape_of(const Slice& slice) {
  Shape shape;
  for (const Range& range : slice) shape.append(range.count);
  return shape;
}

Status check_slice(const Slice& slice, const Shape& whole) {
  if (!whole.is_fully_defined() || slice.size() != static_cast<size_t>(whole.rank())) {
    return invalid_argument("a slice of {} dimensions is none of {}", slice.size(),
                            whole.to_string());
  }
  int64_t elements = 1;
  for (size_t i = 0; i < slice.size(); ++i) {
    const Range& range = slice[i];
    const int64_t extent = whole.dim(static_cast<int>(i));
    const std::optional<int64_t> all = product(elements, std::max<int64_t>(extent, 1));
    if (extent < 0 || !all) return invalid_argument("{} is no shape", whole.to_string());
    elements = *all;
    if (range.start < 0 || range.count < 0 || range.step < 1 || range.start > extent ||
        range.count > extent ||
        (range.count > 0 &&
         (range.start >= extent || range.count - 1 > (extent - 1 - range.start) / range.step))) {
      return invalid_argument("{} indices from {} on in steps of {} are not in dimension {} of {}",
                              range.count, range.start, range.step, i, whole.to_string());
    }
  }
  return {};
}

Result<SliceOfShape> parse_slice(std::string_view text) {
  Result<SliceOfShape> out = parse_parts(text);
  if (out.ok()) return out;
  return invalid_argument(
      "the slice '{}' cannot be: {}; it is written as '8 4 0,4:-': the extents of the whole "
      "tensor, then a range for each",
      base::message_text(text, 100), base::message_of(out.status()));
}

std::string format_slice(const Slice& slice, const Shape& whole) {
  std::string out;
  for (const int64_t extent : whole.dims()) out += fmt::format("{} ", extent);
  for (size_t i = 0; i < slice.size(); ++i) {
    const Range& range = slice[i];
    if (i > 0) out += ':';
    if (range == Range{.start = 0, .count = whole.dim(static_cast<int>(i))}) {
      out += '-';
    } else {
      out += fmt::format("{},{}", range.start, range.count);
      if (range.step != 1) out += fmt::format(",{}", range.step);
    }
  }
  return out;
}

Status for_each_run(const Slice& from, const Slice& to, absl::FunctionRef<Status(const Run&)> use) {
  const Walk walk = walk_of(from, to);
  if (walk.is_empty) return {};
  std::vector<int64_t> at(walk.loops.size());
  for (;;) {
    Run run{.count = walk.run};
    for (size_t i = 0; i < at.size(); ++i) {
      const Meeting& loop = walk.loops[i];
      run.from += (loop.from + at[i] * loop.from_step) * walk.from_strides[i];
      run.to += (loop.to + at[i] * loop.to_step) * walk.to_strides[i];
    }
    SR_RETURN_IF_ERROR(use(run));
    size_t i = at.size();
    while (i > 0 && ++at[i - 1] == walk.loops[i - 1].count) at[--i] = 0;
    if (i == 0) return {};
  }
}

int64_t num_common(const Slice& a, const Slice& b) {
  int64_t out = 1;
  for (size_t i = 0; i < a.size(); ++i) out *= meet(a[i], b[i]).count;
  return out;
}

int64_t copy_common(const Slice& from_slice, const tensor::Tensor& from, const Slice& to_slice,
                    tensor::Tensor* to) {
  SR_CHECK(from.dtype() == to->dtype() && from.shape() == shape_of(from_slice) &&
           to->shape() == shape_of(to_slice));
  const size_t size = tensor::size_of(from.dtype());
  int64_t copied = 0;
  const Status status = for_each_run(from_slice, to_slice, [&](const Run& run) -> Status {
    std::memcpy(to->raw() + static_cast<size_t>(run.to) * size,
                from.raw() + static_cast<size_t>(run.from) * size,
                static_cast<size_t>(run.count) * size);
    copied += run.count;
    return {};
  });
  SR_CHECK(status.ok());
  if (from.dtype() == tensor::DType::kString && copied > 0) {
    to->buffer()->keep_all_of(*from.buffer());
  }
  return copied;
}

}  // namespace sidereal::ckpt
