#include "sidereal/train/group_column.h"

#include <algorithm>

#include "sidereal/base/strings.h"

namespace sidereal::train {

using base::invalid_argument;

Result<GroupColumn> group_column(const data::DataSpec& data, const std::string& group) {
  if (group.empty()) return GroupColumn();
  if (data.format == data::Format::kArrays) return GroupColumn{.name = group};
  SR_ASSIGN_OR_RETURN(const data::Schema schema, data::inspect(data));
  int64_t index = 0;
  for (const std::string& name : schema.categorical) {
    if (name == group) return GroupColumn{.name = "ids", .index = index};
    const auto many = std::find_if(data.multi_hot.begin(), data.multi_hot.end(),
                                   [&](const data::MultiHot& one) { return one.column == name; });
    index += many == data.multi_hot.end() ? 1 : many->max_length;
  }
  return invalid_argument(
      "rows are to be grouped by '{}', which is no categorical column of the data; these are: {}",
      group, base::join(schema.categorical, ", "));
}

Status append_groups(const tensor::Tensor& values, const GroupColumn& column,
                     std::vector<int64_t>* out) {
  const int rank = values.shape().rank();
  const int64_t width = rank == 2 ? values.shape().dim(1) : 1;
  if (values.dtype() != tensor::DType::kInt64 || rank < 1 || rank > 2 || column.index >= width) {
    return invalid_argument(
        "rows are to be grouped by '{}', which is {} {}; it must be int64 [rows]", column.name,
        tensor::name_of(values.dtype()), values.shape().to_string());
  }
  const auto ids = values.data<const int64_t>();
  for (auto at = static_cast<size_t>(column.index); at < ids.size();
       at += static_cast<size_t>(width)) {
    out->push_back(ids[at]);
  }
  return {};
}

}  // namespace sidereal::train
