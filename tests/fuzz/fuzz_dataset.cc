#include <string>

#include "sidereal/base/check.h"
#include "sidereal/dataset/definition.h"
#include "sidereal/dataset/definition_text.h"
#include "sidereal/dataset/iterator.h"
#include "sidereal/ops/ops.h"
#include "tests/fuzz/fuzz.h"

namespace {

namespace dataset = sidereal::dataset;

const sidereal::ir::OpRegistry& registry() {
  static const auto* const all = [] {
    auto* made = new sidereal::ir::OpRegistry;
    sidereal::ops::register_all(made);
    dataset::register_dataset_ops(made);
    return made;
  }();
  return *all;
}

dataset::DatasetPtr with(const std::string& op, const dataset::DatasetPtr& input, int64_t number) {
  return *dataset::Dataset::make(
      {.op = op,
       .inputs = {input},
       .parameters = {dataset::Parameter::of(sidereal::tensor::Tensor::scalar(number))}});
}

/// Stages with buffers and counts, which give 14 elements at most from any place.
dataset::DatasetPtr some_dataset() {
  const auto number = [](int64_t value) {
    return dataset::Parameter::of(sidereal::tensor::Tensor::scalar(value));
  };
  const dataset::DatasetPtr range =
      *dataset::Dataset::make({.op = "Range",
                               .attrs = {{"dtype", sidereal::tensor::DType::kInt64}},
                               .parameters = {number(0), number(9), number(1)}});
  const dataset::DatasetPtr rows = with("Batch", with("Shuffle", range, 4), 2);
  const dataset::DatasetPtr single = *dataset::Dataset::make({.op = "Unbatch", .inputs = {rows}});
  return with("Take", with("Repeat", single, 2), 14);
}

}  // namespace

/// A text that is taken is written as a text that reads as the same dataset; other bytes are where
/// an iterator was.
SR_FUZZ_TARGET(dataset) {
  if (!input.starts_with("sidereal-graph")) {
    static const dataset::DatasetPtr some = some_dataset();
    const auto iterator = dataset::Iterator::make(some, {});
    dataset::Element element;
    if (!(*iterator)->restore(input).ok()) return;
    for (int i = 0; i < 50 && (*iterator)->next(&element).value_or(false); ++i) {
    }
    return;
  }
  const auto read = dataset::from_text(input, registry());
  if (!read.ok()) return;
  static_cast<void>((*read)->cardinality());
  const auto text = dataset::to_text(**read, registry());
  if (!text.ok()) return;
  const auto again = dataset::from_text(*text, registry());
  SR_CHECK(again.ok(), "{}", sidereal::base::message_of(again.status()));
  SR_CHECK((*again)->outputs() == (*read)->outputs(), "a dataset reads back as another one");
}
