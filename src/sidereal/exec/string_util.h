#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sidereal/exec/kernel_util.h"
#include "sidereal/parse/text.h"

/// Helpers for kernels of strings. Internal to exec.
namespace sidereal::exec {

/// Where the elements of a broadcast input are: element i of the output has element `spread(i)`.
/// Value type; made in every run.
class Spread {
 public:
  /// `to` is what `from` broadcasts to.
  Spread(const tensor::Shape& from, const tensor::Shape& to);
  int64_t operator()(int64_t i) const { return table_.empty() ? i * step_ : table_[i]; }

 private:
  int64_t step_ = 1;  // 0: one element for all.
  std::vector<int64_t> table_;
};

/// The shape that inputs [first, last] broadcast to; kInvalidArgument when they do not.
Result<tensor::Shape> broadcast_inputs(const KernelContext& c, int first, int last);

/// True for a byte that goes on with a UTF-8 character that began before it.
constexpr bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

/// Text of a tensor for people: elements row by row in brackets, `summarize` at each end of a
/// dimension (-1: all), strings in quotes.
std::string text_of(const tensor::Tensor& x, int64_t summarize);

/// Output 0: the inputs, all strings, broadcast and one behind another with `separator` between.
Status join_inputs(KernelContext& c, std::string_view separator);

void register_string_number_kernels(KernelTable* table);
void register_string_join_kernels(KernelTable* table);
void register_string_change_kernels(KernelTable* table);
void register_raw_kernels(KernelTable* table);
void register_csv_kernels(KernelTable* table);
void register_example_kernels(KernelTable* table);

/// All of the above.
void register_string_kernels(KernelTable* table);

}  // namespace sidereal::exec
