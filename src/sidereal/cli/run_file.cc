#include "sidereal/cli/run_file.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <utility>

#include "sidereal/base/hash.h"
#include "sidereal/base/strings.h"
#include "sidereal/cli/config_file.h"
#include "sidereal/cli/report.h"
#include "sidereal/data/byte_source.h"
#include "sidereal/data/table_formats.h"
#include "sidereal/data/toml.h"

namespace sidereal::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "run.toml";
constexpr int64_t kDigestBytes = int64_t{1} << 20;

std::string now() {
  const std::time_t seconds =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(seconds));
}

std::string text_line(const char* key, const std::string& value) {
  return fmt::format("{} = {}\n", key, data::toml_string(value));
}

/// TOML's numbers of files that this program reads are finite.
std::string number_line(const char* key, double value) {
  return std::isfinite(value) ? fmt::format("{} = {:.9g}\n", key, value) : "";
}

std::string whole_line(const char* key, int64_t value) {
  return fmt::format("{} = {}\n", key, value);
}

std::string figures(const char* table, const train::EvalResult& r) {
  std::string out = fmt::format("\n[{}.{}]\n", kRunTable, table);
  out += whole_line("rows", r.rows) + number_line("loss", r.loss) + number_line("auc", r.auc) +
         number_line("log_loss", r.log_loss);
  for (const auto& [name, value] : train::more_figures(r)) out += number_line(name, value);
  return out;
}

std::string option_lines(const TrainingJob& job) {
  std::string out;
  std::string group;
  for (const AskedOption& one : job.asked) {
    if (one.group != std::exchange(group, one.group)) out += fmt::format("\n# {}\n", one.group);
    const bool has_none = one.value.is_null() || (one.value.is_array() && one.value.empty()) ||
                          (one.value.is_string() && one.value.get<std::string>().empty());
    if (!has_none) {
      out += fmt::format("{} = {}\n", one.name, toml_value(one.value));
      continue;
    }
    const auto& known = job.model.optimizer.parameters;
    const auto rate = known.find("learning_rate");
    if (one.name == "lr" && rate != known.end()) {
      out += fmt::format("# lr = {:.9g}  # As {} has it by default.\n", rate->second,
                         job.model.optimizer.kind);
    }
  }
  return out;
}

}  // namespace

std::string run_path(const TrainingJob& job) {
  if (!job.fit.checkpoints.directory.empty()) return job.fit.checkpoints.directory + "/" + kName;
  if (!job.events_path.empty()) return job.events_path + "/" + kName;
  if (job.json_path.empty()) return "";
  const fs::path json(job.json_path);
  std::error_code unknown;
  // Beside a pipe there is no place, nor beside /dev/stdout, whatever that is.
  const bool is_device = json.parent_path() == "/dev";
  if (is_device || (fs::exists(json, unknown) && !fs::is_regular_file(json, unknown))) return "";
  return (json.parent_path() / (json.stem().string() + "." + kName)).string();
}

DataFacts data_facts(const std::vector<std::string>& files) {
  DataFacts out;
  uint64_t digest = 0;
  std::string part;
  for (const std::string& name : files) {
    const std::string path = data::table_file(name).path;
    if (data::is_remote(path)) {
      // Of what lies elsewhere its size says whether it is the same.
      const Result<int64_t> size = data::file_bytes(name);
      if (!size.ok()) continue;
      ++out.files;
      out.bytes += *size;
      digest = base::hash64(fmt::format("{}:{}", path, *size), digest);
      continue;
    }
    std::error_code unknown;
    const auto size = static_cast<int64_t>(fs::file_size(path, unknown));
    std::ifstream file(path, std::ios::binary);
    if (unknown || !file) continue;
    ++out.files;
    out.bytes += size;
    digest = base::hash64(&size, sizeof(size), digest);
    for (const int64_t at : {int64_t{0}, std::max<int64_t>(0, size - kDigestBytes)}) {
      part.resize(static_cast<size_t>(std::min(size, kDigestBytes)));
      file.seekg(at);
      file.read(part.data(), static_cast<std::streamsize>(part.size()));
      part.resize(static_cast<size_t>(file.gcount()));
      file.clear();
      digest = base::hash64(part, digest);
    }
  }
  out.digest = fmt::format("{:016x}", digest);
  return out;
}

RunFile::RunFile(const TrainingJob& job, std::string version)
    : job_(job),
      path_(run_path(job)),
      version_(std::move(version)),
      started_(now()),
      data_(path_.empty() ? DataFacts() : data_facts(job.data.files)) {}

Status RunFile::begin() { return write(text({}, "running", "")); }

void RunFile::evaluated(const train::EvalResult& result) {
  so_far_.fit.validation.push_back(result);
  so_far_.fit.epochs = static_cast<int64_t>(so_far_.fit.validation.size());
  if (failed_.ok()) failed_ = write(text(so_far_, "running", ""));
}

void RunFile::epoch_ended(int64_t epoch, double training_loss) {
  so_far_.fit.training_losses = {training_loss};
  so_far_.fit.epochs = epoch;
  if (failed_.ok()) failed_ = write(text(so_far_, "running", ""));
}

Status RunFile::end(const TrainingOutcome& outcome, bool is_interrupted) {
  std::string how = "done";
  if (!outcome.error.ok()) {
    how = is_interrupted ? "interrupted" : "failed";
  } else if (outcome.fit.epochs < job_.fit.epochs && job_.fit.steps_max == 0) {
    how = "stopped early";
  }
  TrainingOutcome last = outcome;
  // A fit that failed has told its epochs, and nothing else.
  if (last.fit.epochs < so_far_.fit.epochs) last.fit = so_far_.fit;
  const Status written = write(text(last, how, now()));
  return failed_.ok() ? written : failed_;
}

std::string RunFile::text(const TrainingOutcome& outcome, const std::string& how,
                          const std::string& ended) const {
  const train::FitResult& fit = outcome.fit;
  std::string out =
      "# What `sidereal train` was asked, all defaults filled in: the same again is\n"
      "# `sidereal train --config THIS_FILE`, in the same folder.\n";
  out += option_lines(job_);
  out += fmt::format(
      "\n# What became of it. --config passes over this table and those in it.\n[{}]\n", kRunTable);
  out += text_line("how", how) + text_line("started", started_);
  out += ended.empty() ? text_line("heard", now()) : text_line("ended", ended);
  out += text_line("version", version_);
  if (!outcome.error.ok()) {
    out += text_line("error", fmt::format("{}: {}", base::code_name(outcome.error.code()),
                                          base::message_of(outcome.error)));
  }
  out += whole_line("data_files", data_.files) + whole_line("data_bytes", data_.bytes) +
         text_line("data_digest", data_.digest) +
         whole_line("embedding_rows", job_.model.schema.rows) +
         whole_line("fields", job_.model.schema.fields) +
         whole_line("dense_width", job_.model.schema.dense_width);
  out += whole_line("epochs", fit.epochs);
  // With validation data it is one of the figures of that.
  if (fit.validation.empty() && !fit.training_losses.empty()) {
    out += number_line("training_loss", fit.training_losses.back());
  }
  if (fit.steps > 0) {
    out += whole_line("steps", fit.checkpoints.steps_before + fit.steps) +
           whole_line("rows", fit.checkpoints.rows_before + fit.rows) +
           number_line("loss", fit.loss) + number_line("seconds", fit.seconds) +
           number_line("samples_per_s", fit.samples_per_s);
  }
  if (fit.best_epoch > 0) {
    out += whole_line("best_epoch", fit.best_epoch) +
           fmt::format("restored_best = {}\n", fit.restored_best);
  }
  if (!fit.checkpoints.latest.empty()) {
    out += text_line("checkpoint", fs::path(fit.checkpoints.latest).filename().string());
  }
  if (!fit.validation.empty()) out += figures("last", fit.validation.back());
  if (fit.best_epoch > 0) {
    out += figures("best", fit.validation[static_cast<size_t>(fit.best_epoch - 1)]);
  }
  if (outcome.test.has_value()) out += figures("test", *outcome.test);
  return out;
}

Status RunFile::write(const std::string& text) const {
  if (path_.empty()) return {};
  const fs::path folder = fs::path(path_).parent_path();
  std::error_code unknown;
  if (!folder.empty()) fs::create_directories(folder, unknown);
  // That a folder cannot be made is told by those whose results are for it.
  if (unknown) return {};
  // Whoever reads it meanwhile sees all of it.
  const std::string unfinished = path_ + ".new";
  SR_RETURN_IF_ERROR(write_file(unfinished, text));
  fs::rename(unfinished, path_, unknown);
  if (!unknown) return {};
  return base::failed_precondition("cannot write {}: {}", path_, unknown.message());
}

}  // namespace sidereal::cli
