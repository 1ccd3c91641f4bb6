#include "sidereal/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cstdlib>
#include <map>

#include "sidereal/app/cluster.h"
#include "sidereal/base/strings.h"
#include "sidereal/cli/cluster_option.h"
#include "sidereal/cli/data_options.h"
#include "sidereal/cli/option_kinds.h"
#include "sidereal/cli/security_options.h"
#include "sidereal/config/consistency.h"
#include "sidereal/data/table_formats.h"
#include "sidereal/service/job.h"
#include "sidereal/train/autoscale.h"

namespace sidereal::cli {

namespace {

std::vector<std::string> protocol_names() {
  return {cluster::protocol_names().begin(), cluster::protocol_names().end()};
}

Result<std::map<std::string, double, std::less<>>> parse_parameters(
    const std::vector<std::string>& parameters) {
  std::map<std::string, double, std::less<>> values;
  for (const std::string& text : parameters) {
    const size_t equals = text.find('=');
    const Result<double> value = equals == std::string::npos
                                     ? base::invalid_argument("no '='")
                                     : base::parse_double(text.substr(equals + 1));
    if (!value.ok()) {
      return base::invalid_argument("--optimizer-param: '{}' is not NAME=NUMBER", text);
    }
    values[text.substr(0, equals)] = *value;
  }
  return values;
}

/// Workers that run already have working directories of their own.
void name_absolutely(std::vector<std::string>* files) {
  for (std::string& file : *files) file = data::absolute_name(file);
}

Status plan_model(const TrainArguments& a, TrainingJob* job) {
  train::ModelOptions& m = job->model;
  m.kind = a.model;
  SR_ASSIGN_OR_RETURN(m.schema, data::inspect(job->data));
  m.embedding_dim = a.embedding_dim;
  m.embedding_stddev = a.embedding_stddev;
  SR_ASSIGN_OR_RETURN(m.hidden, parse_numbers("--hidden", a.hidden));
  m.dropout = a.dropout;
  m.cross_layers = a.cross_layers;
  m.objective = {.loss = a.loss, .classes = a.classes};
  m.experts = a.experts;
  m.l2_embedding = a.l2_embedding;
  m.l2_linear = a.l2_linear;
  m.l2_dense = a.l2_dense;
  m.warmup_steps = a.warmup_steps;
  SR_ASSIGN_OR_RETURN(const auto parameters, parse_parameters(a.optimizer_parameters));
  SR_ASSIGN_OR_RETURN(m.optimizer, train::make_optimizer(a.optimizer, a.learning_rate, parameters));
  m.seed = a.seed;
  // Building is cheap and says at once what no cluster could change.
  return train::build_model(m).status();
}

/// "10:30" as the steps to trace.
Status read_trace_steps(const std::string& text, train::FitOptions* fit) {
  const std::vector<std::string> ends = base::split(text, ':');
  for (size_t i = 0; i < ends.size() && ends.size() == 2; ++i) {
    const Result<int64_t> step = base::parse_int(base::trim(ends[i]));
    if (!step.ok() || *step < 0) break;
    (i == 0 ? fit->trace_first : fit->trace_end) = *step;
  }
  if (fit->trace_end > fit->trace_first) return {};
  return base::invalid_argument(
      "--trace-steps is '{}'; it must be two numbers of steps, the first below the second: 10:30",
      text);
}

/// Before anything starts; running servers are asked how many lanes they have.
Status check_consistency(const TrainArguments& a) {
  SR_ASSIGN_OR_RETURN(const config::Consistency mode, config::parse_consistency(a.consistency));
  if (!a.cluster.empty()) return {};
  return config::check_consistency(mode, int64_t{a.workers} * a.worker_lanes, a.steps_in_flight);
}

/// What is done with the figures of validation data.
Status plan_validation(const TrainArguments& a, TrainingJob* job) {
  const bool has_valid = job->valid.has_value();
  if (a.patience > 0 && !has_valid) return base::invalid_argument("--patience needs --valid");
  if (a.restore_best.value_or(false) && !has_valid) {
    return base::invalid_argument("--restore-best needs --valid, which says which epoch is best");
  }
  job->fit.metrics_by = a.metrics_by;
  if (!a.metrics_by.empty() && !has_valid && !job->test.has_value()) {
    return base::invalid_argument(
        "--metrics-by needs --valid or --test, whose rows it puts together");
  }
  const bool has_files = !a.checkpoint_dir.empty();
  if (!has_files && !a.cluster.empty()) {
    if (!a.restore_best.value_or(false)) return {};
    return base::invalid_argument(
        "--restore-best with --cluster needs --checkpoint-dir, where parameter servers keep the "
        "best weights");
  }
  job->fit.restore_best = a.restore_best.value_or(a.patience > 0);
  job->keeps_best_apart = job->fit.restore_best && !has_files;
  return {};
}

Status plan_rest(const TrainArguments& a, TrainingJob* job) {
  SR_RETURN_IF_ERROR(plan_model(a, job));
  job->fit.batch_size = a.batch_size;
  job->fit.epochs = a.epochs;
  job->fit.steps_max = a.steps_max;
  job->fit.steps_in_flight = a.steps_in_flight;
  job->fit.consistency = a.consistency;
  SR_RETURN_IF_ERROR(base::with_context(check_consistency(a), "--consistency"));
  job->fit.autoscale = a.autoscale;
  SR_RETURN_IF_ERROR(
      base::with_context(train::parse_autoscale(a.autoscale).status(), "--autoscale"));
  job->fit.compute_dtype = a.compute_dtype;
  job->fit.learning_rate_decay = a.lr_decay;
  job->fit.patience = a.patience;
  job->fit.record_losses = !a.losses.empty();
  job->fit.checkpoints = {.directory = a.checkpoint_dir,
                          .save_every = a.save_every,
                          .keep = a.keep,
                          .full_every = a.full_every,
                          .resume = a.resume};
  SR_RETURN_IF_ERROR(base::with_context(train::check_save_every(a.save_every), "--save-every"));
  if (a.checkpoint_dir.empty() && a.resume != "auto" && a.resume != "never") {
    return base::invalid_argument("--resume {} needs --checkpoint-dir, where it is saved on",
                                  a.resume);
  }
  job->fit.restores = a.on_ps_loss == "restore";
  job->fit.continues = a.on_worker_loss == "continue";
  job->fit.losses_max = a.restarts;
  job->fit.restart_timeout_s = a.restart_timeout;
  if (job->fit.restores && a.checkpoint_dir.empty()) {
    return base::invalid_argument(
        "--on-ps-loss restore needs --checkpoint-dir, from which what was lost is restored");
  }
  SR_RETURN_IF_ERROR(plan_validation(a, job));
  job->placement = {.parts_per_lane = a.parts_per_lane, .start_ps = a.start_ps};
  job->local.ps = a.ps;
  job->local.workers = a.workers;
  job->local.ps_lanes = a.ps_lanes;
  job->local.worker_lanes = a.worker_lanes;
  job->local.spin_us = a.spin_us;
  job->local.restarts = job->fit.restores;
  job->local.restarts_max = a.restarts;
  SR_ASSIGN_OR_RETURN(job->local.protocol, cluster::parse_protocol(a.protocol));
  if (!a.cluster.empty()) {
    SR_ASSIGN_OR_RETURN(job->remote, read_cluster(a.cluster));
    SR_ASSIGN_OR_RETURN(job->security, complete_security_options(a.security));
    // It connects to nobody yet, and says which jobs and addresses are wrong.
    SR_RETURN_IF_ERROR(app::remote_cluster(*job->remote, job->security).status());
    for (data::DataSpec* spec :
         {&job->data, job->valid ? &*job->valid : nullptr, job->test ? &*job->test : nullptr}) {
      if (spec != nullptr) name_absolutely(&spec->files);
    }
  }
  if (a.take_over && a.name.empty()) {
    return base::invalid_argument("--take-over needs --name, which says what job is taken over");
  }
  const char* const user = std::getenv("SIDEREAL_USER");
  job->job = {.name = a.name, .take_over = a.take_over, .user = user == nullptr ? "" : user};
  SR_RETURN_IF_ERROR(service::job_holder(job->job).status());
  job->json_path = a.json;
  job->losses_path = a.losses;
  job->events_path = a.tensorboard;
  job->description_path = a.describe;
  job->trace_path = a.trace;
  if (!a.trace.empty()) SR_RETURN_IF_ERROR(read_trace_steps(a.trace_steps, &job->fit));
  job->quiet = a.quiet;
  job->asked = a.asked;
  return {};
}

}  // namespace

void add_demo_data_options(CLI::App* command, TrainArguments* a) {
  whole(command->add_option("--rows", a->rows, "rows of the synthetic stream to train on"), 1,
        kLarge)
      ->group("Data");
  whole(command->add_option("--eval-rows", a->eval_rows,
                            "rows to evaluate on; none of them is trained on"),
        1000, kLarge)
      ->group("Data");
}

void add_model_options(CLI::App* command, TrainArguments* a) {
  const char* group = "Model";
  one_of(command->add_option("--model", a->model,
                             "logistic regression, factorization machine, wide & deep, DeepFM, "
                             "deep & cross, mixture of experts for several labels"),
         train::model_names())
      ->group(group);
  whole(command->add_option("--embedding-dim", a->embedding_dim, "numbers per embedding row"), 1,
        4096)
      ->group(group);
  real(command->add_option("--embedding-stddev", a->embedding_stddev,
                           "standard deviation of the first embeddings"),
       0, 1e6)
      ->group(group);
  command->add_option("--hidden", a->hidden, "units of the hidden layers")
      ->type_name("N,...")
      ->group(group);
  real(command->add_option("--dropout", a->dropout, "share of hidden units dropped, below 1"), 0,
       0.999)
      ->group(group);
  whole(command->add_option("--cross-layers", a->cross_layers, "dcn: layers of the cross network"),
        1, 100)
      ->group(group);
  one_of(command->add_option("--loss", a->loss,
                             "what is minimized: of labels 0 and 1, of numbers, of classes "
                             "0, 1, ... (--classes), or of pairs of rows of a --group"),
         train::loss_names())
      ->group(group);
  whole(command->add_option("--classes", a->classes,
                            "--loss sparse_categorical_crossentropy: how many there are"),
        0, 1 << 20)
      ->group(group);
  whole(command->add_option("--experts", a->experts, "mmoe: experts, which all labels share"), 1,
        1024)
      ->group(group);
  real(command->add_option("--l2-embedding", a->l2_embedding, "L2 penalty on embeddings"), 0, 1e6)
      ->group(group);
  real(command->add_option("--l2-linear", a->l2_linear, "L2 penalty on the linear part"), 0, 1e6)
      ->group(group);
  real(command->add_option("--l2-dense", a->l2_dense, "L2 penalty on kernels of layers"), 0, 1e6)
      ->group(group);
}

void add_training_options(CLI::App* command, TrainArguments* a) {
  const char* group = "Training";
  one_of(command->add_option("--optimizer", a->optimizer, "how weights are updated"),
         train::optimizer_names())
      ->group(group);
  command
      ->add_option("--lr,--learning-rate", a->learning_rate,
                   "learning rate (default: that of the optimizer)")
      ->type_name("X")
      ->group(group);
  command
      ->add_option("--optimizer-param", a->optimizer_parameters,
                   "a parameter of the optimizer, as in beta_1=0.8; may be given again")
      ->type_name("NAME=X")
      ->default_str("")
      ->group(group);
  whole(command->add_option("--batch-size", a->batch_size, "rows per step of one worker lane"), 1,
        1 << 20)
      ->group(group);
  whole(command->add_option("--epochs", a->epochs, "passes over the training data"), 1, 1 << 20)
      ->group(group);
  whole(command->add_option("--steps-max", a->steps_max,
                            "stop each worker lane after so many steps (0: no limit)"),
        0, kLarge)
      ->group(group);
  one_of(command->add_option("--compute-dtype", a->compute_dtype,
                             "what products of matrices are computed in; bfloat16 is faster on "
                             "processors with units for it, float32 elsewhere"),
         {"float32", "bfloat16"})
      ->group(group);
  whole(command->add_option("--steps-in-flight", a->steps_in_flight,
                            "steps a lane may be ahead of its own updates; 1: each step sees the "
                            "updates of the one before"),
        1, 64)
      ->group(group);
  std::string consistencies = "what the steps of a worker lane see of those of others";
  for (const config::ConsistencyForm& one : config::consistency_forms()) {
    consistencies += fmt::format("; {}: {}", one.form, one.doc);
  }
  command->add_option("--consistency", a->consistency, consistencies)
      ->type_name("MODE")
      ->group(group);
  real(command->add_option("--lr-decay", a->lr_decay,
                           "the learning rate is multiplied by this after each epoch"),
       1e-6, 1)
      ->group(group);
  whole(command->add_option("--patience", a->patience,
                            "stop after so many epochs without a better validation AUC (0: never)"),
        0, 1 << 20)
      ->group(group);
  command
      ->add_flag_function(
          "--restore-best,!--no-restore-best", [a](int64_t times) { a->restore_best = times > 0; },
          "the weights of the epoch with the best validation AUC are there again at the end "
          "(by default with --patience)")
      ->default_str("")
      ->group(group);
  whole(command->add_option("--warmup-steps", a->warmup_steps,
                            "steps of all worker lanes in which the learning rate grows to its "
                            "full value (0: none)"),
        0, kLarge)
      ->group(group);
  command->add_option("--seed", a->seed, "decides first weights, dropout and shuffling")
      ->type_name("N")
      ->group(group);
}

void add_checkpoint_options(CLI::App* command, TrainArguments* a) {
  const char* group = "Checkpoints";
  command
      ->add_option("--checkpoint-dir", a->checkpoint_dir,
                   "save the training in this directory, and go on from there: the same command "
                   "after a kill trains each row once")
      ->type_name("DIR")
      ->group(group);
  command
      ->add_option("--save-every", a->save_every,
                   "how often: 90s, 5m, 2h; 1000steps of all worker lanes together; epoch")
      ->type_name("TIME|Nsteps|epoch")
      ->group(group);
  whole(command->add_option("--keep", a->keep, "newest checkpoints that stay (0: all)"), 0, 1 << 20)
      ->group(group);
  whole(command->add_option("--full-every", a->full_every,
                            "one in so many is whole; those between have what has changed since "
                            "the one before (1: all are whole)"),
        1, 1 << 20)
      ->group(group);
  command
      ->add_option("--resume", a->resume,
                   "auto: on from the newest good checkpoint of the directory, if there is one; "
                   "never; or a checkpoint, as in DIR/model.ckpt-1200")
      ->type_name("auto|never|PATH")
      ->group(group);
  one_of(command->add_option("--on-ps-loss", a->on_ps_loss,
                             "restore: a parameter server or worker that is lost is started again, "
                             "and training goes on from the newest checkpoint; those of --cluster "
                             "are started by whoever started them"),
         {"restore", "fail"})
      ->group(group);
  one_of(command->add_option("--on-worker-loss", a->on_worker_loss,
                             "continue: when a worker is lost the others go on with its rows, from "
                             "where the variables are; fail: as --on-ps-loss says"),
         {"continue", "fail"})
      ->group(group);
  whole(command->add_option("--restarts", a->restarts,
                            "--on-ps-loss restore: of one task in ten minutes, and losses without "
                            "a checkpoint between them, before the training ends"),
        1, 1 << 20)
      ->group(group);
  real(command->add_option("--restart-timeout", a->restart_timeout,
                           "seconds until a lost task that is waited for is there again"),
       0.001, 1e6)
      ->group(group);
}

void add_cluster_options(CLI::App* command, TrainArguments* a) {
  const char* group = "Cluster";
  whole(command->add_option("--ps", a->ps, "parameter server processes to start here"), 1, 1024)
      ->group(group);
  whole(command->add_option("--workers", a->workers, "worker processes to start here"), 1, 1024)
      ->group(group);
  whole(command->add_option("--ps-lanes", a->ps_lanes, "threads of each parameter server"), 1, 256)
      ->group(group);
  whole(command->add_option("--worker-lanes", a->worker_lanes, "threads of each worker"), 1, 256)
      ->group(group);
  whole(command->add_option("--parts-per-lane", a->parts_per_lane,
                            "parts of a table for each lane of each parameter server of the "
                            "cluster, which move when the model is told to be on others"),
        1, 1024)
      ->group(group);
  whole(command->add_option("--start-ps", a->start_ps,
                            "parameter servers that the model begins on, the first ones; 0: all. "
                            "The others need not run before sidereal scale"),
        0, 1024)
      ->group(group);
  command->add_option("--autoscale", a->autoscale, train::autoscale_doc())
      ->type_name("MIN-MAX|off")
      ->group(group);
  whole(command->add_option("--spin-us", a->spin_us,
                            "microseconds a thread looks for work before it sleeps; -1: always "
                            "look; -2: chosen from the processors there are"),
        -2, 1'000'000)
      ->group(group);
  one_of(command->add_option("--protocol", a->protocol,
                             "how the tasks that are started here talk; servers of --cluster know "
                             "theirs"),
         protocol_names())
      ->group(group);
  command
      ->add_option("--cluster", a->cluster,
                   "use servers that run already: a JSON file or text with the addresses of ps and "
                   "worker (see sidereal serve)")
      ->type_name("JSON|FILE")
      ->group(group);
  command
      ->add_option("--name", a->name,
                   "what this job is called on the cluster, where one of a name runs at a time; "
                   "without it, a name of its own")
      ->type_name("NAME")
      ->group(group);
  command
      ->add_flag("--take-over", a->take_over,
                 "end the job of this --name that runs on the cluster, and run in its place")
      ->group(group);
  add_security_options(command, &a->security);
}

void add_output_options(CLI::App* command, TrainArguments* a) {
  const char* group = "Output";
  command->add_option("--json", a->json, "write the figures of the training to this file")
      ->type_name("FILE")
      ->group(group);
  command
      ->add_option("--describe", a->describe,
                   "write what the model is to this file, for sidereal export and predict")
      ->type_name("FILE")
      ->group(group);
  command->add_option("--losses", a->losses, "write the loss of each step of worker 0, one a line")
      ->type_name("FILE")
      ->group(group);
  command
      ->add_option("--tensorboard", a->tensorboard,
                   "write how the training goes to a file of events in this folder, while it goes")
      ->type_name("DIR")
      ->group(group);
  command
      ->add_option("--trace", a->trace,
                   "write what some steps did on all tasks to this file, for Chrome's trace viewer")
      ->type_name("FILE")
      ->group(group);
  command
      ->add_option("--trace-steps", a->trace_steps, "steps of each lane to trace, from A up to B")
      ->type_name("A:B")
      ->group(group);
  command->add_flag("--quiet,-q", a->quiet, "no progress and no table, only the results")
      ->group(group);
}

Result<std::vector<int64_t>> parse_numbers(const std::string& option, const std::string& text) {
  std::vector<int64_t> numbers;
  for (const std::string& part : base::split(text, ',')) {
    const Result<int64_t> number = base::parse_int(base::trim(part));
    if (!number.ok() || *number <= 0) {
      return base::invalid_argument(
          "{}: '{}' in '{}' is not a positive number; write numbers with commas between them",
          option, part, text);
    }
    numbers.push_back(*number);
  }
  return numbers;
}

Result<TrainingJob> plan_train(const TrainArguments& a) {
  TrainingJob job;
  SR_ASSIGN_OR_RETURN(job.data, data_spec(a));
  SR_ASSIGN_OR_RETURN(job.valid, other_files(job.data, a.format, a.valid));
  SR_ASSIGN_OR_RETURN(job.test, other_files(job.data, a.format, a.test));
  job.data.shuffle_rows = a.shuffle_rows;
  SR_RETURN_IF_ERROR(plan_rest(a, &job));
  return job;
}

Result<TrainingJob> plan_demo(const TrainArguments& a) {
  TrainingJob job;
  job.data.format = data::Format::kSynthetic;
  job.data.seed = a.seed;
  job.data.synthetic.seed = a.seed;
  job.data.synthetic.rows = a.rows;
  job.test = job.data;
  job.test->synthetic.first_row = a.rows;
  job.test->synthetic.rows = a.eval_rows;
  SR_RETURN_IF_ERROR(plan_rest(a, &job));
  return job;
}

}  // namespace sidereal::cli
