#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/tensor/tensor.h"

/// Tables among the variables of parameter servers, and the files that they are written to.
namespace sidereal::cli {

/// What variables NAME/part_0, NAME/part_1 ... are.
enum class Parts {
  kApart,   ///< Tables of their own.
  kModulo,  ///< Of n parts, row r of NAME is row r / n of part r % n.
  kBlocks,  ///< The rows of NAME, one part after the other.
};

/// Names that are no slots of another variable, as 'w/Adagrad' is of 'w'.
std::vector<std::string> without_slots(const std::vector<std::string>& names);

using Tables = std::map<std::string, tensor::Tensor>;

/// The tables among `values`: numbers [rows, dim], parts put together. `wanted`: their names;
/// empty: all. kUnavailable naming a part or a table that is not there; kInvalidArgument for one
/// that is no table, and parts that do not fit.
Result<Tables> tables_of(const std::map<std::string, tensor::Tensor>& values, Parts parts,
                         const std::vector<std::string>& wanted);

/// Writes a file of tables (docs/formats/table_file.md), whole or not at all.
Status write_tables(const std::string& path, const Tables& tables);

}  // namespace sidereal::cli
