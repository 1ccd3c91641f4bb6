#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>

#include "sidereal/base/log.h"
#include "sidereal/cli/arguments.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/config_file.h"
#include "sidereal/cli/interrupt.h"

namespace sidereal::cli {

namespace {

constexpr const char* kTrainFooter = R"(Examples:
  sidereal train --data 'day_*.tsv.gz' --format criteo --model deepfm --embedding-dim 16
      --hidden 400,400,400 --optimizer adam --batch-size 1024 --epochs 2
      --test day_23.tsv.gz --ps 2 --workers 2 --seed 7 --json result.json
  sidereal train --data clicks.csv --label click --numeric age,price --model wdl --bad-rows skip
  sidereal train --data a9a --format libsvm --id-space 124 --model lr --optimizer ftrl --lr 0.1
  sidereal train --data clicks.csv --checkpoint-dir run1 --save-every 1000steps
  sidereal train --config run1/run.toml --lr 0.01 --checkpoint-dir run2
  sidereal train --data x.csv
      --cluster '{"ps": ["127.0.0.1:7000"], "worker": ["127.0.0.1:7001"]}')";

constexpr const char* kDemoFooter = R"(Examples:
  sidereal demo
  sidereal demo --rows 200000 --model lr --optimizer ftrl --json demo.json)";

Status run_job(const Result<TrainingJob>& job) {
  if (!job.ok()) return job.status();
  base::set_log_level(base::LogLevel::kWarning);
  std::signal(SIGPIPE, SIG_IGN);
  catch_interrupts();
  return run_training(*job);
}

// Defaults are shown in the help; of an option given twice the last one counts, so that a script
// can append to a command line.
void set_option_defaults(CLI::App* command) {
  command->option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
}

TrainArguments demo_defaults() {
  TrainArguments a;
  a.rows = 10'000'000;
  a.eval_rows = 200'000;
  a.hidden = "128,64";
  a.optimizer = "adam";
  a.ps = 2;
  a.workers = 2;
  a.seed = 1;
  return a;
}

}  // namespace

void add_train(CLI::App* app, Action* action) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App* command = app->add_subcommand("train", "train a click model on files and evaluate it");
  set_option_defaults(command);
  add_data_options(command, arguments.get());
  add_model_options(command, arguments.get());
  add_training_options(command, arguments.get());
  add_checkpoint_options(command, arguments.get());
  add_cluster_options(command, arguments.get());
  add_output_options(command, arguments.get());
  add_config_option(command);
  command->footer(kTrainFooter);
  command->final_callback([arguments, action, command] {
    arguments->asked = asked_options(*command);
    *action = [arguments] { return run_job(plan_train(*arguments)); };
  });
}

void add_demo(CLI::App* app, Action* action) {
  auto arguments = std::make_shared<TrainArguments>(demo_defaults());
  CLI::App* command = app->add_subcommand(
      "demo", "train on a built-in stream of click logs whose best possible AUC is known");
  set_option_defaults(command);
  add_demo_data_options(command, arguments.get());
  add_model_options(command, arguments.get());
  add_training_options(command, arguments.get());
  add_checkpoint_options(command, arguments.get());
  add_cluster_options(command, arguments.get());
  add_output_options(command, arguments.get());
  add_config_option(command);
  command->footer(kDemoFooter);
  command->final_callback([arguments, action, command] {
    arguments->asked = asked_options(*command);
    *action = [arguments] { return run_job(plan_demo(*arguments)); };
  });
}

}  // namespace sidereal::cli
