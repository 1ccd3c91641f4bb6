#pragma once

#include <map>
#include <string>
#include <vector>

#include "sidereal/base/status.h"
#include "sidereal/service/table_layout.h"
#include "sidereal/tensor/tensor.h"

/// Files of the tables among the variables of parameter servers.
namespace sidereal::cli {

using Tables = std::map<std::string, tensor::Tensor>;

/// The tables among `values`, parts put together. `wanted`: their names; empty: all. kUnavailable
/// naming a part or a table that is not there; kInvalidArgument for one that is no table, and parts
/// that do not fit. `seen`: of the files before.
Result<Tables> tables_of(const std::map<std::string, tensor::Tensor>& values, service::Parts parts,
                         const std::vector<std::string>& wanted, service::PartsSeen* seen);

/// Writes a file of tables (docs/formats/table_file.md), whole or not at all.
Status write_tables(const std::string& path, const Tables& tables);

}  // namespace sidereal::cli
