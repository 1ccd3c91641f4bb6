#include "sidereal/ir/component_specs.h"

#include <utility>

#include "sidereal/ir/schema.h"

namespace sidereal::ir {

Result<std::vector<TensorSpec>> component_specs(const AttrMap& attrs) {
  SR_ASSIGN_OR_RETURN(const auto dtypes, get_attr<std::vector<std::string>>(attrs, "dtypes"));
  const auto* shapes = find_attr<std::vector<int64_t>>(attrs, "shapes");
  std::vector<TensorSpec> out;
  size_t at = 0;
  for (const std::string& name : dtypes) {
    TensorSpec& spec = out.emplace_back();
    SR_ASSIGN_OR_RETURN(spec.dtype, tensor::dtype_from_name(name));
    spec.shape = Shape::unknown_rank();
    if (shapes == nullptr) continue;
    const int64_t rank = at < shapes->size() ? (*shapes)[at++] : -2;
    if (rank < -1 || rank > kMaxRank || rank > static_cast<int64_t>(shapes->size() - at)) {
      return base::invalid_argument("attribute 'shapes' has no shape for value {}", out.size() - 1);
    }
    if (rank < 0) continue;
    spec.shape = Shape(std::span(*shapes).subspan(at, static_cast<size_t>(rank)));
    at += static_cast<size_t>(rank);
    SR_RETURN_IF_ERROR(check_shape(spec.shape));
  }
  if (shapes != nullptr && at != shapes->size()) {
    return base::invalid_argument("attribute 'shapes' has more than {} shapes", dtypes.size());
  }
  return out;
}

AttrMap component_attrs(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> dtypes;
  std::vector<int64_t> shapes;
  for (const TensorSpec& spec : specs) {
    dtypes.emplace_back(tensor::name_of(spec.dtype));
    shapes.push_back(spec.shape.has_rank() ? spec.shape.rank() : -1);
    for (int d = 0; spec.shape.has_rank() && d < spec.shape.rank(); ++d) {
      shapes.push_back(spec.shape.dim(d));
    }
  }
  return {{"dtypes", std::move(dtypes)}, {"shapes", std::move(shapes)}};
}

}  // namespace sidereal::ir
