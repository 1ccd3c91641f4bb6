#include "sidereal/cli/inspect_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "sidereal/base/strings.h"
#include "sidereal/cli/data_options.h"
#include "sidereal/cli/option_kinds.h"
#include "sidereal/data/features_file.h"
#include "sidereal/data/statistics.h"
#include "sidereal/data/table_formats.h"
#include "sidereal/train/optimizers.h"

namespace sidereal::cli {

namespace {

struct InspectArguments {
  std::vector<std::string> files;
  std::string label;
  std::string format = "csv";
  std::string delimiter = ",";
  int64_t rows = data::kSampleRows;
  int64_t hash_buckets = 100'000;
  int64_t embedding_dim = 16;
  std::string optimizer = "adam";
  int ps = 1;
};

/// What tables of a row for each category would take, with weights of the linear part.
Result<std::string> memory_lines(const InspectArguments& a, const std::string& proposed,
                                 data::DataSpec spec) {
  SR_RETURN_IF_ERROR(data::take_features_text(proposed, "the proposal", &spec));
  spec.hash_buckets = a.hash_buckets;
  spec.numeric_transform = data::Transform::kNone;
  SR_ASSIGN_OR_RETURN(const data::Schema schema, data::inspect(spec));
  SR_ASSIGN_OR_RETURN(const auto rule, kernels::UpdateRule::make(a.optimizer));
  const int64_t floats = rule.row_floats(a.embedding_dim) + rule.row_floats(1);
  const double bytes = static_cast<double>(schema.rows * floats) * sizeof(float);
  return fmt::format(
      "# Embeddings of {} rows with {} numbers and what {} keeps of them: {} on each of {} ps.\n",
      base::human_count(static_cast<double>(schema.rows)), a.embedding_dim + 1, a.optimizer,
      base::human_bytes(bytes / a.ps), a.ps);
}

Result<std::string> inspect_files(const InspectArguments& a) {
  data::DataSpec spec;
  SR_ASSIGN_OR_RETURN(spec.delimiter, parse_delimiter(a.delimiter));
  SR_ASSIGN_OR_RETURN(spec.files, files_of(a.format, a.files));
  spec.delimiter = data::delimiter_of(spec.files, spec.delimiter);
  SR_ASSIGN_OR_RETURN(const auto columns, data::column_statistics(spec, a.rows));
  if (columns.empty() || columns.front().rows == 0) {
    return base::invalid_argument("{} has no rows to look at", spec.files.front());
  }
  if (!a.label.empty()) {
    std::vector<std::string> names;
    for (const auto& one : columns) names.push_back(one.name);
    if (std::find(names.begin(), names.end(), a.label) == names.end()) {
      return base::invalid_argument("no column '{}'; the columns are: {}", a.label,
                                    base::join(names, ", "));
    }
  }
  const std::string proposed = data::proposed_features(columns, a.label);
  std::string out =
      fmt::format("# Of the first {} rows. For sidereal train --features.\n", columns.front().rows);
  // Without a label, or with nothing but ignored columns, there is nothing to estimate.
  const auto memory = memory_lines(a, proposed, spec);
  if (memory.ok()) out += *memory;
  return out + proposed;
}

}  // namespace

void add_inspect(CLI::App* app, Action* action) {
  CLI::App* command = app->add_subcommand(
      "inspect", "look at the columns of a table, and propose how to train on them");
  command->option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  auto a = std::make_shared<InspectArguments>();
  command->add_option("files", a->files, "files, here or elsewhere (s3://, http://); patterns")
      ->type_name("FILE")
      ->default_str("")
      ->required();
  command->add_option("--label", a->label, "the column of the label (found by its name)")
      ->type_name("COLUMN");
  one_of(command->add_option("--format", a->format, "csv stands for what names of files say"),
         data::table_format_names());
  command->add_option("--delimiter", a->delimiter, "character between columns, or tab")
      ->type_name("CHAR");
  whole(command->add_option("--rows", a->rows, "rows to look at"), 1, kLarge);
  whole(command->add_option("--hash-buckets", a->hash_buckets,
                            "of the estimate of memory: ids per categorical column"),
        1, kLarge);
  whole(command->add_option("--embedding-dim", a->embedding_dim, "of it: numbers per row"), 1,
        4096);
  one_of(command->add_option("--optimizer", a->optimizer, "of it: what keeps numbers of its own"),
         train::optimizer_names());
  whole(command->add_option("--ps", a->ps, "of it: parameter servers"), 1, 1024);
  command->footer(R"(Example:
  sidereal inspect clicks.csv > features.toml
  sidereal train --data clicks.csv --features features.toml --model deepfm)");
  command->final_callback([a, action] {
    *action = [a]() -> Status {
      SR_ASSIGN_OR_RETURN(const std::string text, inspect_files(*a));
      std::fwrite(text.data(), 1, text.size(), stdout);
      return {};
    };
  });
}

}  // namespace sidereal::cli
