#include "sidereal/dataset/feed.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "sidereal/dataset/definition_text.h"
#include "sidereal/ops/ops.h"

namespace sidereal::dataset {
namespace {

constexpr int kThreadsMax = 16;

class Feed final : public ports::ElementReading {
 public:
  explicit Feed(std::shared_ptr<Iterator> iterator) : iterator_(std::move(iterator)) {}

  Result<std::optional<std::vector<Tensor>>> take() override {
    Element element;
    SR_ASSIGN_OR_RETURN(const Poll poll, iterator_->poll(&element));
    if (poll == Poll::kNotYet) return std::nullopt;
    if (poll == Poll::kEnd) {
      return base::out_of_range("End of sequence: the dataset has no more elements");
    }
    std::vector<Tensor> out;
    for (Component& component : element) {
      if (component.list != nullptr) {
        return base::unimplemented(
            "an element has a window; make a tensor of it, as in "
            "ds.window(n).flat_map(lambda w: w.batch(n))");
      }
      out.push_back(std::move(component.tensor));
    }
    return out;
  }
  void cancel() override { iterator_->cancel(); }

 private:
  std::shared_ptr<Iterator> iterator_;
};

class TextDatasets final : public ports::Datasets {
 public:
  explicit TextDatasets(uint64_t seed) : seed_(seed) {
    ops::register_all(&registry_);
    register_dataset_ops(&registry_);
  }

  Result<std::shared_ptr<ports::ElementReading>> open(std::string_view definition,
                                                      const std::vector<Tensor>& values,
                                                      std::function<void()> changed) override {
    SR_ASSIGN_OR_RETURN(DatasetPtr dataset, from_text(definition, registry_));
    SR_ASSIGN_OR_RETURN(dataset, dataset->filled(dataset, values, {}));
    IteratorOptions options;
    options.seed = seed_++;
    options.threads =
        std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kThreadsMax);
    SR_ASSIGN_OR_RETURN(std::shared_ptr<Iterator> iterator,
                        Iterator::make(std::move(dataset), std::move(options)));
    return make_feed(std::move(iterator), std::move(changed));
  }

 private:
  ir::OpRegistry registry_;
  std::atomic<uint64_t> seed_;
};

}  // namespace

std::shared_ptr<ports::Datasets> make_datasets(uint64_t seed) {
  return std::make_shared<TextDatasets>(seed);
}

std::shared_ptr<ports::ElementReading> make_feed(std::shared_ptr<Iterator> iterator,
                                                 std::function<void()> changed) {
  iterator->read_ahead(std::move(changed));
  return std::make_shared<Feed>(std::move(iterator));
}

}  // namespace sidereal::dataset
