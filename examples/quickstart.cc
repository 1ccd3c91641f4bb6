// Clicks on ids, planted and found again, on two parameter servers and two workers: the program of
// quickstart.py in C++. Usage: quickstart [ROWS] [EPOCHS]

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "sidereal/app/cluster.h"
#include "sidereal/base/status.h"
#include "sidereal/train/layers.h"
#include "sidereal/train/model.h"
#include "sidereal/train/optimizers.h"
#include "sidereal/train/trainer.h"

namespace {

namespace fs = std::filesystem;
using sidereal::Result;
using sidereal::Status;
using namespace sidereal::train;

constexpr int kFields = 8;
constexpr int64_t kIds = 10'000;

/// A folder for this program's files, removed with the object.
class Folder {
 public:
  Folder()
      : path_(fs::temp_directory_path() / fmt::format("quickstart-{}", std::random_device{}())) {
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

/// Each id has a score; the scores of a row decide how likely its label is 1.
Status write_clicks(const std::string& path, int64_t rows, uint64_t seed) {
  std::ofstream out(path);
  out << "label,a,b,c,d,e,f,g,h\n";
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform;
  for (int64_t row = 0; row < rows; ++row) {
    std::string ids;
    double logit = 0;
    for (int field = 0; field < kFields; ++field) {
      const uint64_t id = random() % kIds;
      ids += fmt::format(",{}", id);
      logit += std::sin(static_cast<double>(id));
    }
    out << (uniform(random) < 1 / (1 + std::exp(-logit)) ? '1' : '0') << ids << '\n';
  }
  out.close();
  if (out.fail()) return sidereal::base::resource_exhausted("cannot write {}", path);
  return {};
}

sidereal::data::DataSpec clicks_in(const std::string& path) {
  sidereal::data::DataSpec data;
  data.format = sidereal::data::Format::kCsv;
  data.files = {path};
  data.id_space = kIds;
  data.shuffle_rows = 100'000;
  return data;
}

Result<CompiledModel> make_model() {
  Model model(7);
  const Output ids = model.input("ids", sidereal::ir::DType::kInt64, {kFields});
  const Output weights = Embedding{.rows = kIds, .dim = 1, .name = "weights"}(model, ids);
  const Output vectors = Embedding{.rows = kIds, .dim = 16, .name = "vectors"}(model, ids);
  const Output hidden = Mlp{.hidden = {64, 64}}(model, Flatten{}(model, vectors));
  const Output logit =
      Add{}(model, {WeightedSum{}(model, weights), FactorizationMachine{}(model, vectors),
                    Dense{.units = 1}(model, hidden)});
  return model.compile(logit, optimizer_of("adagrad", 0.3));
}

Status run(int64_t rows, int64_t epochs) {
  const Folder folder;
  SR_RETURN_IF_ERROR(write_clicks(folder.file("train.csv"), rows, 7));
  SR_RETURN_IF_ERROR(write_clicks(folder.file("test.csv"), rows / 10, 8));
  SR_ASSIGN_OR_RETURN(CompiledModel model, make_model());

  sidereal::app::LocalClusterOptions tasks;
  tasks.ps = 2;
  tasks.workers = 2;
  SR_ASSIGN_OR_RETURN(const auto cluster, sidereal::app::start_local_cluster(tasks));
  SR_ASSIGN_OR_RETURN(const auto trainer, Trainer::create(cluster.get(), std::move(model)));
  FitOptions options;
  options.batch_size = 256;
  options.epochs = epochs;
  SR_ASSIGN_OR_RETURN(const FitResult fit,
                      trainer->fit(clicks_in(folder.file("train.csv")), options));
  fmt::print("trained on {} rows: {} steps, {:.0f} samples/s, loss {:.4f}\n", fit.rows, fit.steps,
             fit.samples_per_s, fit.loss);
  SR_ASSIGN_OR_RETURN(const EvalResult test,
                      trainer->evaluate(clicks_in(folder.file("test.csv")), options));
  fmt::print("test: auc {:.4f}, log loss {:.4f} on {} rows\n", test.auc, test.log_loss, test.rows);
  return cluster->stop();
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::strtoll(argv[1], nullptr, 10) : 200'000;
  const int64_t epochs = argc > 2 ? std::strtoll(argv[2], nullptr, 10) : 3;
  const Status status = run(rows, epochs);
  if (status.ok()) return 0;
  fmt::print(stderr, "quickstart: {}\n", sidereal::base::message_of(status));
  return 1;
}
