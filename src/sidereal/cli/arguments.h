#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sidereal/app/cluster.h"
#include "sidereal/base/status.h"
#include "sidereal/cli/config_file.h"
#include "sidereal/cli/training.h"
#include "sidereal/security/credentials.h"

namespace CLI {
class App;
}  // namespace CLI

namespace sidereal::cli {

/// What `sidereal train` and `sidereal demo` were told, as it was written. Value type.
struct TrainArguments {
  // Data.
  std::vector<std::string> data;
  std::vector<std::string> valid;
  std::vector<std::string> test;
  std::string format = "csv";
  std::string label = "label";
  std::string positive;
  std::string weight;
  std::string numeric;
  std::string numeric_transform = "auto";
  std::string categorical;
  std::vector<std::string> defaults;
  std::vector<std::string> multi_hot;
  std::vector<std::string> vocabularies;
  std::vector<std::string> sequences;
  std::string hash = "xxh3";
  std::string targets;
  std::string group;
  std::string negatives;
  std::vector<std::string> class_weights;
  std::string buckets;
  std::string crosses;
  std::string features;
  std::string delimiter = ",";
  int64_t hash_buckets = 100'000;
  int64_t id_space = 0;
  std::string bad_rows = "fail";
  int64_t shuffle_rows = 100'000;
  // Demo data.
  int64_t rows = 0;
  int64_t eval_rows = 0;
  // Model.
  std::string model = "deepfm";
  int64_t embedding_dim = 16;
  double embedding_stddev = 0.01;
  std::string hidden = "400,400,400";
  double dropout = 0;
  int64_t cross_layers = 3;
  std::string loss = "binary_crossentropy";
  int64_t classes = 0;
  int64_t experts = 4;
  double l2_embedding = 0;
  double l2_linear = 0;
  double l2_dense = 0;
  // Training.
  std::string optimizer = "adam";
  std::optional<double> learning_rate;
  std::vector<std::string> optimizer_parameters;
  int64_t batch_size = 1024;
  int64_t epochs = 1;
  int64_t steps_max = 0;
  int64_t steps_in_flight = 1;
  std::string consistency = "async";
  std::string compute_dtype = "float32";
  double lr_decay = 1;
  int64_t patience = 0;
  std::optional<bool> restore_best;
  int64_t warmup_steps = 0;
  std::string metrics_by;
  uint64_t seed = 0;
  // Checkpoints.
  std::string checkpoint_dir;
  std::string save_every = "5m";
  int64_t keep = 5;
  int64_t full_every = 1;
  std::string resume = "auto";
  std::string on_ps_loss = "fail";
  std::string on_worker_loss = "fail";
  int restarts = 5;
  double restart_timeout = 120;
  // Cluster.
  int ps = 1;
  int workers = 1;
  int ps_lanes = 1;
  int worker_lanes = 1;
  int64_t parts_per_lane = train::PlacementOptions().parts_per_lane;
  int64_t start_ps = 0;
  std::string autoscale = "off";
  int64_t spin_us = -2;
  std::string protocol = "star_server";
  std::string cluster;
  std::string name;
  bool take_over = false;
  security::SecurityOptions security;
  // Output.
  std::string json;
  std::string losses;
  std::string tensorboard;
  std::string describe;
  std::string trace;
  std::string trace_steps = "10:30";
  bool quiet = false;
  /// All of these as files have them.
  std::vector<AskedOption> asked;
};

/// Adds the options of one part of the arguments to a subcommand; defaults are those `arguments`
/// hold now. Borrows `arguments`.
void add_data_options(CLI::App* command, TrainArguments* arguments);
void add_demo_data_options(CLI::App* command, TrainArguments* arguments);
void add_model_options(CLI::App* command, TrainArguments* arguments);
void add_training_options(CLI::App* command, TrainArguments* arguments);
void add_checkpoint_options(CLI::App* command, TrainArguments* arguments);
void add_cluster_options(CLI::App* command, TrainArguments* arguments);
void add_output_options(CLI::App* command, TrainArguments* arguments);

/// "400,300" as numbers. kInvalidArgument naming `option` and the part that is no number.
Result<std::vector<int64_t>> parse_numbers(const std::string& option, const std::string& text);

/// What to train, from the arguments of `sidereal train`: finds files, reads their headers, checks
/// every name and number.
Result<TrainingJob> plan_train(const TrainArguments& arguments);
/// As plan_train(), for the synthetic stream of `sidereal demo`.
Result<TrainingJob> plan_demo(const TrainArguments& arguments);

}  // namespace sidereal::cli
