// Speed of training DeepFM on a cluster of processes on this machine, data in memory.
//
// The model is that of bench/peers/torch_deepfm.py: categorical fields with uniform ids, one table,
// Adagrad. Prints one JSON line per setting; bench/train.py puts PyTorch beside it.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "sidereal/app/cluster.h"
#include "sidereal/train/models.h"
#include "sidereal/train/optimizers.h"
#include "sidereal/train/trainer.h"

namespace {

using sidereal::Result;
using sidereal::Status;
namespace train = sidereal::train;
namespace data = sidereal::data;

struct Flags {
  int64_t fields = 26;
  int64_t vocabulary = 100'000;
  int64_t dim = 16;
  std::vector<int64_t> hidden = {400, 400, 400};
  int64_t batch = 1024;
  int64_t steps = 400;
  int64_t steps_in_flight = 1;
  int ps = 1;
  int workers = 1;
  int ps_lanes = 1;
  int worker_lanes = 1;
  int64_t spin_us = -2;
  int windows = 5;
  std::string protocol = "star_server";
  std::string compute_dtype = "float32";
};

/// Writes an array in the .npy format, version 1.0.
template <class T>
void write_npy(const std::string& path, const std::string& type, const std::vector<T>& values,
               const std::string& shape) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize((header.size() + 10 + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::ofstream out(path, std::ios::binary);
  const auto size = static_cast<uint16_t>(header.size());
  out.write("\x93NUMPY\x01\x00", 8);
  out.write(reinterpret_cast<const char*>(&size), 2);
  out << header;
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
}

/// Uniform ids, field after field in one id space, and labels that are 1 in a quarter of the rows.
data::DataSpec write_data(const Flags& flags, const std::string& folder) {
  std::mt19937_64 random(7);
  constexpr int64_t kBatches = 100;
  const int64_t rows = flags.batch * kBatches;
  std::vector<int64_t> ids(static_cast<size_t>(rows * flags.fields));
  std::vector<float> labels(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t f = 0; f < flags.fields; ++f) {
      ids[r * flags.fields + f] =
          f * flags.vocabulary +
          static_cast<int64_t>(random() % static_cast<uint64_t>(flags.vocabulary));
    }
    labels[r] = random() % 4 == 0 ? 1.0F : 0.0F;
  }
  data::DataSpec spec;
  spec.format = data::Format::kArrays;
  spec.categorical = {"ids"};
  spec.id_space = flags.fields * flags.vocabulary;
  spec.arrays = {{"ids", folder + "/ids.npy"}, {"label", folder + "/label.npy"}};
  write_npy(spec.arrays[0].second, "<i8", ids, fmt::format("{}, {}", rows, flags.fields));
  write_npy(spec.arrays[1].second, "<f4", labels, fmt::format("{},", rows));
  return spec;
}

Status run(const Flags& flags, const std::string& folder) {
  const data::DataSpec spec = write_data(flags, folder);
  train::ModelOptions options;
  SR_ASSIGN_OR_RETURN(options.schema, data::inspect(spec));
  options.embedding_dim = flags.dim;
  options.hidden = flags.hidden;
  options.optimizer = train::optimizer_of("adagrad", 0.01);
  SR_ASSIGN_OR_RETURN(train::CompiledModel model, train::build_model(options));
  sidereal::app::LocalClusterOptions cluster_options;
  cluster_options.ps = flags.ps;
  cluster_options.workers = flags.workers;
  cluster_options.ps_lanes = flags.ps_lanes;
  cluster_options.worker_lanes = flags.worker_lanes;
  cluster_options.spin_us = flags.spin_us;
  SR_ASSIGN_OR_RETURN(cluster_options.protocol, sidereal::cluster::parse_protocol(flags.protocol));
  SR_ASSIGN_OR_RETURN(const auto cluster, sidereal::app::start_local_cluster(cluster_options));
  SR_ASSIGN_OR_RETURN(const auto trainer, train::Trainer::create(cluster.get(), std::move(model)));
  train::FitOptions fit;
  fit.batch_size = flags.batch;
  fit.steps_in_flight = flags.steps_in_flight;
  fit.compute_dtype = flags.compute_dtype;
  fit.epochs = 1000;
  fit.steps_max = 30;
  SR_RETURN_IF_ERROR(trainer->fit(spec, fit).status());
  fit.steps_max = flags.steps;
  for (int window = 0; window < flags.windows; ++window) {
    SR_ASSIGN_OR_RETURN(const train::FitResult result, trainer->fit(spec, fit));
    nlohmann::json line = {{"samples_per_s", result.samples_per_s},
                           {"steps_in_flight", flags.steps_in_flight},
                           {"loss", result.loss}};
    for (const train::TaskStats& task : result.tasks) {
      line["tasks"][task.task] = {{"compute_s", task.compute_s},
                                  {"wait_s", task.wait_s},
                                  {"data_wait_s", task.data_wait_s}};
    }
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }
  return cluster->stop();
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Speed of training DeepFM on processes on this machine");
  app.add_option("--fields", flags.fields, "categorical fields")->capture_default_str();
  app.add_option("--vocabulary", flags.vocabulary, "ids per field")->capture_default_str();
  app.add_option("--dim", flags.dim, "floats per embedding row")->capture_default_str();
  app.add_option("--hidden", flags.hidden, "units per layer")->delimiter(',');
  app.add_option("--batch", flags.batch, "rows per step")->capture_default_str();
  app.add_option("--steps", flags.steps, "steps per window")->capture_default_str();
  app.add_option("--windows", flags.windows, "windows timed")->capture_default_str();
  app.add_option("--steps-in-flight", flags.steps_in_flight)->capture_default_str();
  app.add_option("--ps", flags.ps)->capture_default_str();
  app.add_option("--workers", flags.workers)->capture_default_str();
  app.add_option("--ps-lanes", flags.ps_lanes)->capture_default_str();
  app.add_option("--worker-lanes", flags.worker_lanes)->capture_default_str();
  app.add_option("--protocol", flags.protocol)->capture_default_str();
  app.add_option("--compute-dtype", flags.compute_dtype, "float32 or bfloat16");
  app.add_option("--spin-us", flags.spin_us, "-2: chosen; -1: always")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::error_code ignored;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("sidereal-bench-{}", getpid());
  std::filesystem::create_directories(folder);
  const Status status = run(flags, folder.string());
  std::filesystem::remove_all(folder, ignored);
  if (status.ok()) return 0;
  fmt::print(stderr, "bench_train: {}: {}\n", sidereal::base::code_name(status.code()),
             sidereal::base::message_of(status));
  return 1;
}
