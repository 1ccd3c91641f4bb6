#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/dtype.h"
#include "sidereal/tensor/shape.h"

/// Which variables of parameter servers are tables, and where rows of a table are.
namespace sidereal::service {

/// What variables NAME/part_0, NAME/part_1 ... are.
enum class Parts {
  kApart,   ///< Tables of their own.
  kModulo,  ///< Of n parts, row r of NAME is row r / n of part r % n.
  kBlocks,  ///< The rows of NAME, one part after the other.
};

/// How users name them.
inline constexpr std::array<std::pair<std::string_view, Parts>, 3> kPartsNames = {
    {{"apart", Parts::kApart}, {"modulo", Parts::kModulo}, {"blocks", Parts::kBlocks}}};
/// kInvalidArgument with the names there are.
Result<Parts> parts_of(std::string_view name);

/// What is known of a variable without its value. Value type.
struct VariableForm {
  tensor::DType dtype = tensor::DType::kInvalid;
  tensor::Shape shape = {};
};

/// A table, and the variables that its rows are in. Value type.
struct TableLayout {
  /// A row of one of the variables.
  struct Place {
    size_t part = 0;
    int64_t row = 0;
  };
  /// Of a row of the table, which must be one.
  [[nodiscard]] Place place(int64_t row) const;
  [[nodiscard]] size_t row_bytes() const {
    return static_cast<size_t>(dim) * tensor::size_of(dtype);
  }

  tensor::DType dtype = tensor::DType::kInvalid;
  int64_t rows = 0;
  int64_t dim = 0;
  Parts parts = Parts::kApart;
  std::vector<std::string> variables = {};  ///< The parts in order; of a table in none, itself.
  std::vector<int64_t> begins = {};         ///< Of kBlocks: the first row of each part.
};

struct TableLayouts {
  /// By name. kUnavailable for a table that lacks a part, kInvalidArgument for parts that do not
  /// fit.
  std::map<std::string, Result<TableLayout>> tables;
  /// Variables that are no tables: a table is numbers [rows, dim].
  std::set<std::string> others;
};

/// How many parts tables had that are there, by name: a table whose last parts are gone for a while
/// is not a table of fewer ones.
using PartsSeen = std::map<std::string, size_t>;

/// The tables among variables. What `seen` has is wanted of them, and what they have is noted
/// there; a table of which nothing is left is forgotten.
TableLayouts layouts_of(const std::map<std::string, VariableForm>& variables, Parts parts,
                        PartsSeen* seen);

/// Names that are no slots of another variable, as 'w/Adagrad' is of 'w'.
std::vector<std::string> without_slots(const std::vector<std::string>& names);

}  // namespace sidereal::service
