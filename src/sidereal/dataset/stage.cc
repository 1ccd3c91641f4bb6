#include <algorithm>
#include <string_view>
#include <utility>

#include "sidereal/dataset/internal/stage.h"

namespace sidereal::dataset {
namespace {

constexpr std::string_view kSources[] = {"Tensors", "TensorSlices", "Range",     "TextLines",
                                         "Records", "Rows",         "Generator", "Argument"};
constexpr std::string_view kBatches[] = {"Batch", "PaddedBatch", "RaggedBatch", "Unbatch",
                                         "Window"};
constexpr std::string_view kFunctions[] = {"Map", "Filter", "TakeWhile", "Interleave"};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Result<Poll> Stage::poll(Element* out) {
  SR_ASSIGN_OR_RETURN(const bool some, next(out));
  return some ? Poll::kElement : Poll::kEnd;
}

Result<int64_t> Stage::skip(int64_t count) {
  Element element;
  for (int64_t i = 0; i < count; ++i) {
    SR_ASSIGN_OR_RETURN(const bool some, next(&element));
    if (!some) return i;
  }
  return count;
}

Status Stage::restore_iterations(PositionReader* in) const {
  uint64_t iterations = 0;
  SR_RETURN_IF_ERROR(in->get(&iterations));
  dataset_->shared().iterations.store(iterations);
  return {};
}

Status Stage::check_stopped() const {
  return runtime_.stopped() ? base::cancelled("the iterator was ended") : Status();
}

Element element_of(std::vector<Tensor> tensors) {
  Element out;
  out.reserve(tensors.size());
  for (Tensor& tensor : tensors) out.push_back({std::move(tensor), nullptr});
  return out;
}

Result<StagePtr> make_stage(const DatasetPtr& dataset, Runtime* runtime) {
  const std::string& op = dataset->op();
  if (is_one_of(kSources, op)) return make_source(dataset, runtime);
  StagePtr input;
  SR_ASSIGN_OR_RETURN(input, make_stage(dataset->def().inputs[0], runtime));
  if (is_one_of(kBatches, op)) return make_batches(dataset, std::move(input), runtime);
  if (is_one_of(kFunctions, op)) return make_function(dataset, std::move(input), runtime);
  return make_order(dataset, std::move(input), runtime);
}

}  // namespace sidereal::dataset
