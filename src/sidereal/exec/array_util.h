#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/tensor/dispatch.h"

/// Helpers for kernels of array ops. Internal to exec.
namespace sidereal::exec {

using Ints = tensor::Shape::Dims;

/// Integers that are an attribute or a tensor input (int32 or int64): see ops/args.h.
/// Value type; made by a factory, asked in every run.
class IntsArg {
 public:
  /// The attribute `name` when the instruction has one, else input `input`, which must be there.
  static Result<IntsArg> bind(const BindContext& bind, const std::string& name, int input);
  /// The integers of this run.
  [[nodiscard]] Result<Ints> get(const KernelContext& c) const;
  /// True when they are an attribute.
  [[nodiscard]] bool is_attr() const { return input_ < 0; }

 private:
  Ints values_;
  int input_ = -1;
};

/// The only integer of an argument bound by IntsArg (attribute of type int or input).
class IntArg {
 public:
  static Result<IntArg> bind(const BindContext& bind, const std::string& name, int input);
  [[nodiscard]] Result<int64_t> get(const KernelContext& c) const;

 private:
  int64_t value_ = 0;
  int input_ = -1;
};

/// The elements of an int32 or int64 input as int64; kInvalidArgument for other dtypes.
Result<Ints> ints_of(const tensor::Tensor& t);

/// A shape of `extents`, none negative and with at most 2^48 elements; kInvalidArgument otherwise.
Result<tensor::Shape> checked_shape(std::span<const int64_t> extents);

/// As KernelContext::output() for a shape that the values of arguments ask for: kResourceExhausted
/// when the machine has no such memory.
Result<tensor::Tensor*> large_output(KernelContext& c, int i, const tensor::Shape& shape);

/// "[1,2]": where element `flat` of a value of `shape` is.
std::string place_of(int64_t flat, const tensor::Shape& shape);

/// `axis` in [0, rank), from one that may count from the end.
Result<int> axis_in(int64_t axis, int rank);

/// kInvalidArgument unless inputs `a` and `b` have one dtype.
Status check_same_dtype(const KernelContext& c, int a, int b);

/// Bytes per element of `t`.
inline int64_t bytes_of(const tensor::Tensor& t) {
  return static_cast<int64_t>(tensor::size_of(t.dtype()));
}

/// Product of the extents of dimensions [from, to).
int64_t product_of(const tensor::Shape& shape, int from, int to);

/// Calls f.template operator()<I>() with I = int32_t or int64_t as `dtype` says.
template <class F>
Status with_index(tensor::DType dtype, F f) {
  return tensor::with_dtype<tensor::IndexTypes>(dtype, f);
}

/// A factory that checks that output `o` has the dtype of input `i`, then goes on with `factory`.
KernelFactory output_like(int o, int i, KernelFactory factory);

/// What places may be: any of an id, or those of unique(), where each id first appears in order.
enum class Places { kAny, kFirstInOrder };

/// kInvalidArgument unless `position` is what Route makes for parts of rows[s] rows, and `inverse`
/// has places among those positions. Peers may send others. `next` is memory.
Status check_places(std::span<const int64_t> position, std::span<const int32_t> inverse,
                    Places places, std::span<const int64_t> rows, std::vector<int64_t>& next);

void register_array_shape_kernels(KernelTable* table);
void register_array_slice_kernels(KernelTable* table);
void register_array_join_kernels(KernelTable* table);
void register_array_gather_kernels(KernelTable* table);
void register_lookup_kernels(KernelTable* table);
void register_array_segment_kernels(KernelTable* table);
void register_array_sort_kernels(KernelTable* table);
void register_array_membership_kernels(KernelTable* table);
void register_spatial_kernels(KernelTable* table);

/// All of the above.
void register_array_kernels(KernelTable* table);

}  // namespace sidereal::exec
