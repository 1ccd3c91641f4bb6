#include "sidereal/ckpt/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "sidereal/ckpt/checkpoint_writer.h"
#include "sidereal/ckpt/npz.h"
#include "sidereal/ckpt/safetensors.h"
#include "sidereal/ckpt/tensor_bundle.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/tensor/dispatch.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::ckpt {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int64_t kPartBytes = int64_t{16} << 20;

/// Why the format cannot hold the tensor; "" when it can.
Result<std::string> why_not(TensorReader* from, const StoredTensor& stored, Format to) {
  if (stored.dtype == DType::kInvalid) return "a dtype that Sidereal does not have";
  if (stored.dtype != DType::kString || to == Format::kNative || to == Format::kTensorFlow) {
    return "";
  }
  if (to == Format::kSafetensors) return "safetensors has no strings";
  SR_ASSIGN_OR_RETURN(const Tensor strings, from->read(stored.name));
  const auto all = strings.data<const std::string_view>();
  const bool ends_with_nul =
      std::any_of(all.begin(), all.end(), [](std::string_view s) { return s.ends_with('\0'); });
  return ends_with_nul ? "npz does not keep NULs at the end of strings" : "";
}

/// The slices that are written.
std::vector<Slice> slices_for(const StoredTensor& stored, Format to) {
  const auto has_step = [](const Slice& slice) {
    return std::any_of(slice.begin(), slice.end(), [](const Range& r) { return r.step != 1; });
  };
  if (to == Format::kNative) return stored.slices;
  // TensorFlow has slices of no other kind.
  const bool is_possible = stored.dtype != DType::kString &&
                           std::none_of(stored.slices.begin(), stored.slices.end(), has_step);
  return to == Format::kTensorFlow && is_possible ? stored.slices : std::vector<Slice>();
}

Result<std::unique_ptr<TensorWriter>> create(const std::string& path, Format format,
                                             std::vector<StoredTensor> tensors) {
  switch (format) {
    case Format::kNative:
      return create_checkpoint(sys::posix::create_disk(), path);
    case Format::kTensorFlow:
      return create_tensor_bundle(path);
    case Format::kSafetensors:
      return create_safetensors(path, std::move(tensors));
    case Format::kNpz:
      return create_npz(path);
  }
  return base::internal("a format that is none");
}

/// The number that an element stands for.
template <class T>
double number(T value) {
  if constexpr (std::is_same_v<T, tensor::Float16> || std::is_same_v<T, tensor::BFloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

/// What is known of the differences of two tensors so far.
struct Tally {
  int64_t differ = 0;
  int64_t first = 0;     ///< The first element that differs.
  double distance = 0;   ///< The largest.
  int64_t elements = 0;  ///< Compared.

  void add(int64_t i, double apart) {
    if (differ++ == 0) first = elements + i;
    distance = std::max(distance, apart);
  }
};

void compare_parts(const Tensor& a, const Tensor& b, double tolerance, Tally* tally) {
  tensor::visit_dtype<tensor::AllTypes>(a.dtype(), [&]<class T>() {
    const auto left = a.data<const T>();
    const auto right = b.data<const T>();
    for (size_t i = 0; i < left.size(); ++i) {
      if constexpr (std::is_same_v<T, std::string_view>) {
        if (left[i] != right[i]) tally->add(static_cast<int64_t>(i), 0);
      } else {
        // Numbers of the same bits are equal, whatever they are.
        const auto bits = [](const T& x) { return reinterpret_cast<const std::byte*>(&x); };
        if (std::memcmp(bits(left[i]), bits(right[i]), sizeof(T)) == 0) continue;
        const double x = number(left[i]);
        const double y = number(right[i]);
        if (std::isnan(x) && std::isnan(y)) continue;
        // Large integers of 64 bits may be one double, and differ.
        const double apart = x == y ? (std::is_integral_v<T> ? 1.0 : 0.0) : std::fabs(x - y);
        if (!(apart <= tolerance)) tally->add(static_cast<int64_t>(i), apart);
      }
    }
  });
  tally->elements += a.num_elements();
}

Result<std::string> difference(TensorReader* a, TensorReader* b, const StoredTensor& left,
                               const StoredTensor& right, double tolerance) {
  if (left.dtype != right.dtype || left.shape != right.shape) {
    return fmt::format("{}{} and {}{}", tensor::name_of(left.dtype), left.shape.to_string(),
                       tensor::name_of(right.dtype), right.shape.to_string());
  }
  if (left.dtype == DType::kInvalid) return "a dtype that Sidereal does not have: not compared";
  Tally tally;
  SR_RETURN_IF_ERROR(
      for_each_part(whole_slice(left.shape), left.dtype, [&](const Slice& part) -> Status {
        SR_ASSIGN_OR_RETURN(const Tensor x, a->read(left.name, part));
        SR_ASSIGN_OR_RETURN(const Tensor y, b->read(right.name, part));
        compare_parts(x, y, tolerance, &tally);
        return {};
      }));
  if (tally.differ == 0) return "";
  std::string at;
  int64_t rest = tally.first;
  for (int i = left.shape.rank(); i-- > 0;) {
    at = fmt::format("{}{}{}", rest % left.shape.dim(i), at.empty() ? "" : ",", at);
    rest /= left.shape.dim(i);
  }
  std::string how =
      fmt::format("{} of {} elements differ, first at [{}]", tally.differ, tally.elements, at);
  if (left.dtype != DType::kString) how += fmt::format(", by up to {:g}", tally.distance);
  return how;
}

}  // namespace

Status for_each_part(const Slice& slice, DType dtype,
                     absl::FunctionRef<Status(const Slice& part)> use) {
  const int64_t elements = shape_of(slice).num_elements();
  if (slice.empty() || elements == 0 || dtype == DType::kString) return use(slice);
  const int64_t row = elements / slice[0].count;
  const int64_t rows =
      std::max<int64_t>(1, kPartBytes / static_cast<int64_t>(tensor::size_of(dtype)) / row);
  for (int64_t from = 0; from < slice[0].count; from += rows) {
    Slice part = slice;
    part[0].start += from * part[0].step;
    part[0].count = std::min(rows, slice[0].count - from);
    SR_RETURN_IF_ERROR(use(part));
  }
  return {};
}

Result<Converted> convert(TensorReader* from, Format to, const std::string& path) {
  Converted out;
  std::vector<StoredTensor> tensors;
  for (const StoredTensor& stored : from->list()) {
    SR_ASSIGN_OR_RETURN(const std::string why, why_not(from, stored, to));
    if (!why.empty()) {
      out.left_out.push_back(fmt::format("{}: {}", stored.name, why));
      continue;
    }
    StoredTensor written = stored;
    written.slices = slices_for(stored, to);
    tensors.push_back(std::move(written));
  }
  SR_ASSIGN_OR_RETURN(const auto writer, create(path, to, tensors));
  for (const StoredTensor& written : tensors) {
    // Of parts there are no checksums.
    SR_RETURN_IF_ERROR(from->verify(written.name));
    for (const Slice& slice : pieces_of(written)) {
      SR_RETURN_IF_ERROR(for_each_part(slice, written.dtype, [&](const Slice& part) -> Status {
        SR_ASSIGN_OR_RETURN(const Tensor piece, from->read(written.name, part));
        out.bytes += written.dtype == DType::kString ? tensor::string_bytes(piece) : piece.nbytes();
        return writer->add(written, slice, piece);
      }));
    }
    ++out.tensors;
  }
  SR_RETURN_IF_ERROR(writer->finish());
  return out;
}

Result<std::vector<Difference>> compare(TensorReader* a, TensorReader* b, double tolerance) {
  std::vector<Difference> out;
  const auto& left = a->list();
  const auto& right = b->list();
  for (size_t i = 0, j = 0; i < left.size() || j < right.size();) {
    if (j == right.size() || (i < left.size() && left[i].name < right[j].name)) {
      out.push_back({left[i++].name, "only in the first"});
    } else if (i == left.size() || right[j].name < left[i].name) {
      out.push_back({right[j++].name, "only in the second"});
    } else {
      SR_ASSIGN_OR_RETURN(std::string how, difference(a, b, left[i], right[j], tolerance));
      if (!how.empty()) out.push_back({left[i].name, std::move(how)});
      ++i;
      ++j;
    }
  }
  return out;
}

}  // namespace sidereal::ckpt
