#include "sidereal/dataset/feed.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "sidereal/dataset/definition_text.h"
#include "sidereal/ops/ops.h"

namespace sidereal::dataset {
namespace {

constexpr int kThreadsMax = 16;

/// Tells whoever waits that something has changed, as long as there is somebody.
/// Thread: any.
class Teller {
 public:
  explicit Teller(std::function<void()> changed) : changed_(std::move(changed)) {}
  void tell() {
    const std::lock_guard lock(mutex_);
    if (changed_) changed_();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    changed_ = nullptr;
  }

 private:
  std::mutex mutex_;
  std::function<void()> changed_;
};

class Work final : public ports::ReadingWork {
 public:
  [[nodiscard]] std::optional<Result<std::string>> poll() const override {
    const std::lock_guard lock(mutex_);
    return result_;
  }
  void set(Result<std::string> result) {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
  }
  /// Does `what` on a thread that ends with it, then tells.
  static std::shared_ptr<Work> begin(std::function<Result<std::string>()> what,
                                     std::shared_ptr<Teller> teller) {
    auto made = std::make_shared<Work>();
    try {
      std::thread([made, what = std::move(what), teller = std::move(teller)] {
        made->set(what());
        teller->tell();
      }).detach();
    } catch (const std::system_error& error) {
      made->set(base::resource_exhausted("there is no thread left: {}", error.what()));
    }
    return made;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Result<std::string>> result_;
};

class Feed final : public ports::ElementReading {
 public:
  Feed(std::shared_ptr<Iterator> iterator, std::shared_ptr<Teller> teller)
      : iterator_(std::move(iterator)), teller_(std::move(teller)) {}
  ~Feed() override { teller_->end(); }
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

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
  std::shared_ptr<ports::ReadingWork> save() override {
    return Work::begin([iterator = iterator_] { return iterator->save(); }, teller_);
  }
  std::shared_ptr<ports::ReadingWork> restore(std::string position) override {
    return Work::begin(
        [iterator = iterator_, position = std::move(position)]() -> Result<std::string> {
          Status status = iterator->restore(position);
          if (status.ok()) return std::string();
          if (status.code() != StatusCode::kDataLoss) return status;
          return base::invalid_argument("the bytes are no position of this dataset: {}",
                                        base::message_of(status));
        },
        teller_);
  }
  void cancel() override { iterator_->cancel(); }

 private:
  // The reader tells as long as it lasts, which may be longer than this.
  std::shared_ptr<Iterator> iterator_;
  std::shared_ptr<Teller> teller_;
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
  auto teller = std::make_shared<Teller>(std::move(changed));
  iterator->read_ahead([teller] { teller->tell(); });
  return std::make_shared<Feed>(std::move(iterator), std::move(teller));
}

}  // namespace sidereal::dataset
