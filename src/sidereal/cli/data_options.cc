#include "sidereal/cli/data_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "sidereal/base/strings.h"
#include "sidereal/cli/option_kinds.h"
#include "sidereal/data/features_file.h"
#include "sidereal/data/statistics.h"
#include "sidereal/data/table_formats.h"
#include "sidereal/data/vocabulary.h"

namespace sidereal::cli {

using base::invalid_argument;

namespace {

std::vector<std::string> split_columns(const std::string& text, char separator = ',') {
  std::vector<std::string> columns;
  for (const std::string& part : base::split(text, separator)) {
    if (const std::string_view name = base::trim(part); !name.empty()) columns.emplace_back(name);
  }
  return columns;
}

/// "COLUMN=VALUE" in two.
Result<std::pair<std::string, std::string>> split_pair(const std::string& option,
                                                       const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name(base::trim(text.substr(0, equals)));
  if (equals == std::string::npos || name.empty()) {
    return invalid_argument("{}: '{}' is not COLUMN=VALUE", option, text);
  }
  return std::make_pair(name, text.substr(equals + 1));
}

/// "genres:|:8"; a column's name may have colons itself.
Result<data::MultiHot> parse_multi_hot(const std::string& text) {
  const size_t last = text.rfind(':');
  if (last != std::string::npos && last >= 3 && text[last - 2] == ':' &&
      base::utf8_bytes(text) == text.size()) {
    const Result<int64_t> length = base::parse_int(text.substr(last + 1));
    if (length.ok()) {
      return data::MultiHot{
          .column = text.substr(0, last - 2), .separator = text[last - 1], .max_length = *length};
    }
  }
  return invalid_argument("--multi-hot: '{}' is not COLUMN:CHARACTER:N, as in 'genres:|:8'", text);
}

Status take_buckets(const std::string& text, data::DataSpec* spec) {
  for (const std::string& part : split_columns(text)) {
    SR_ASSIGN_OR_RETURN(const auto pair, split_pair("--buckets", part));
    const Result<int64_t> buckets = base::parse_int(base::trim(pair.second));
    if (!buckets.ok()) return invalid_argument("--buckets: '{}' is not COLUMN=N", part);
    spec->bucketized.push_back({.column = pair.first, .buckets = *buckets});
  }
  return {};
}

Status take_label(const TrainArguments& a, data::DataSpec* spec) {
  SR_RETURN_IF_ERROR(data::parse_label_option(a.label, spec));
  if (a.positive.empty()) return {};
  if (!spec->label_rule.op.empty()) {
    return invalid_argument("--label '{}' says which labels are 1 already; leave --positive out",
                            a.label);
  }
  spec->label_rule = {.op = "=", .value = a.positive};
  return {};
}

/// Whether a format is one of tables, which are read as csv is.
bool is_table(const std::string& format) {
  const auto names = data::table_format_names();
  return std::find(names.begin(), names.end(), format) != names.end();
}

/// The options that only csv has a meaning for.
Status refuse_of_csv(const TrainArguments& a, const std::string& format) {
  const bool has_transform = a.numeric_transform != "auto" && a.numeric_transform != "none";
  const std::vector<std::pair<const char*, bool>> given = {
      {"--positive", !a.positive.empty()},    {"--weight", !a.weight.empty()},
      {"--numeric-transform", has_transform}, {"--default", !a.defaults.empty()},
      {"--multi-hot", !a.multi_hot.empty()},  {"--vocabulary", !a.vocabularies.empty()},
      {"--sequence", !a.sequences.empty()},   {"--hash", a.hash != "xxh3"},
      {"--targets", !a.targets.empty()},      {"--group", !a.group.empty()},
      {"--negatives", !a.negatives.empty()},  {"--class-weight", !a.class_weights.empty()},
      {"--buckets", !a.buckets.empty()},      {"--cross", !a.crosses.empty()},
      {"--features", !a.features.empty()}};
  for (const auto& [option, is_given] : given) {
    if (is_given) {
      return invalid_argument(
          "{} is for tables with named columns, such as --format csv, and not for {}", option,
          format);
    }
  }
  return {};
}

/// What is known of numbers by the training that is to go on in a directory, if there is one there:
/// a model that has learned goes on with the scales that it has learned with.
Status take_scales_before(const TrainArguments& a, data::DataSpec* spec) {
  if (a.checkpoint_dir.empty() || a.resume == "never") return {};
  const std::string path = a.checkpoint_dir + "/model.json";
  std::ifstream file(path);
  if (!file) return {};
  const auto root = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("data") || !root["data"].is_object()) return {};
  const auto before = data::spec_from_json(root["data"].dump());
  SR_RETURN_IF_ERROR(base::with_context(before.status(), path));
  const auto columns = [](const data::DataSpec& of) {
    std::vector<std::string> names = of.numeric;
    for (const data::Bucketized& one : of.bucketized) {
      names.push_back(fmt::format("{}={}", one.column, one.buckets));
    }
    for (const data::Vocabulary& one : of.vocabularies) {
      names.push_back(fmt::format("{}:{}:{}", one.column, one.max_tokens, one.num_oov_indices));
    }
    return names;
  };
  // Of other columns it is another model, which checkpoints tell.
  if (columns(*before) != columns(*spec)) return {};
  if (before->numeric_transform != spec->numeric_transform ||
      before->column_transforms != spec->column_transforms) {
    return invalid_argument(
        "{}: the training there has other transforms of its numeric columns (--numeric-transform "
        "{}); give the same, another --checkpoint-dir, or --resume never to begin anew",
        path, data::name_of(before->numeric_transform));
  }
  for (size_t i = 0; i < spec->vocabularies.size(); ++i) {
    data::Vocabulary& now = spec->vocabularies[i];
    const data::Vocabulary& then = before->vocabularies[i];
    if (!now.tokens.empty() && now.tokens != then.tokens) {
      return invalid_argument(
          "{}: the training there has another vocabulary of column '{}', of {} tokens; give the "
          "same file ({}/{} has it), another --checkpoint-dir, or --resume never to begin anew",
          path, then.column, then.tokens.size(), a.checkpoint_dir,
          data::vocabulary_file_name(then.column));
    }
    now.tokens = then.tokens;
  }
  spec->transforms = before->transforms;
  spec->bucketized = before->bucketized;
  return {};
}

/// ".parquet .pq (parquet), ..." of the formats of tables.
std::string table_endings() {
  std::vector<std::string> out;
  for (const data::TableFormat& one : data::table_formats()) {
    out.push_back(fmt::format("{} ({})", one.endings, one.name));
  }
  return base::join(out, ", ");
}

std::vector<std::string> formats() {
  std::vector<std::string> names = {"criteo", "libsvm"};
  for (std::string& name : data::table_format_names()) names.push_back(std::move(name));
  return names;
}

}  // namespace

Result<char> parse_delimiter(const std::string& text) {
  if (text == "tab" || text == "\\t") return '\t';
  if (text.size() == 1) return text[0];
  return invalid_argument("--delimiter: '{}' is not one character (or the word tab)", text);
}

Result<std::vector<std::string>> files_of(const std::string& format,
                                          const std::vector<std::string>& patterns) {
  return is_table(format) ? data::table_files(patterns, format) : data::expand_globs(patterns);
}

Result<data::DataSpec> data_spec(const TrainArguments& a) {
  data::DataSpec spec;
  if (!is_table(a.format)) {
    SR_ASSIGN_OR_RETURN(spec.format, data::format_from_name(a.format));
  }
  SR_ASSIGN_OR_RETURN(spec.bad_rows, data::bad_rows_from_name(a.bad_rows));
  SR_ASSIGN_OR_RETURN(spec.delimiter, parse_delimiter(a.delimiter));
  spec.label = a.label;
  spec.numeric = split_columns(a.numeric);
  spec.categorical = split_columns(a.categorical);
  spec.hash_buckets = a.hash_buckets;
  spec.id_space = a.id_space;
  spec.seed = a.seed;
  spec.binary_label = a.loss == "binary_crossentropy";
  SR_ASSIGN_OR_RETURN(spec.files, files_of(a.format, a.data));
  if (spec.format != data::Format::kCsv) {
    SR_RETURN_IF_ERROR(refuse_of_csv(a, a.format));
    return spec;
  }
  spec.delimiter = data::delimiter_of(spec.files, spec.delimiter);
  SR_ASSIGN_OR_RETURN(spec.numeric_transform, data::transform_from_name(a.numeric_transform));
  SR_RETURN_IF_ERROR(take_label(a, &spec));
  spec.weight = a.weight;
  spec.targets = split_columns(a.targets);
  spec.group = a.group;
  if (!a.negatives.empty()) {
    SR_ASSIGN_OR_RETURN(spec.negatives, data::parse_negatives_option(a.negatives));
  }
  for (const std::string& text : a.class_weights) {
    SR_ASSIGN_OR_RETURN(auto pair, split_pair("--class-weight", text));
    spec.class_weights.push_back(std::move(pair));
  }
  for (const std::string& text : a.defaults) {
    SR_ASSIGN_OR_RETURN(auto pair, split_pair("--default", text));
    spec.defaults.push_back(std::move(pair));
  }
  for (const std::string& text : a.multi_hot) {
    SR_ASSIGN_OR_RETURN(auto one, parse_multi_hot(text));
    spec.multi_hot.push_back(std::move(one));
  }
  for (const std::string& text : a.vocabularies) {
    SR_ASSIGN_OR_RETURN(auto one, data::parse_vocabulary_option(text));
    spec.vocabularies.push_back(std::move(one));
  }
  for (const std::string& text : a.sequences) {
    SR_ASSIGN_OR_RETURN(auto one, data::parse_sequence_option(text));
    spec.sequences.push_back(std::move(one));
  }
  SR_ASSIGN_OR_RETURN(spec.hash, data::hash_from_name(a.hash));
  SR_RETURN_IF_ERROR(take_buckets(a.buckets, &spec));
  for (const std::string& text : split_columns(a.crosses)) {
    spec.crosses.push_back(split_columns(text, '*'));
  }
  if (!a.features.empty()) SR_RETURN_IF_ERROR(data::take_features(a.features, &spec));
  SR_RETURN_IF_ERROR(data::inspect(spec).status());
  SR_RETURN_IF_ERROR(take_scales_before(a, &spec));
  return data::with_statistics(std::move(spec));
}

Result<std::optional<data::DataSpec>> other_files(data::DataSpec spec, const std::string& format,
                                                  const std::vector<std::string>& patterns) {
  if (patterns.empty()) return std::optional<data::DataSpec>();
  if (spec.format == data::Format::kCsv && spec.categorical.empty()) {
    // Fields are those of the training data, in whatever order columns stand here.
    SR_ASSIGN_OR_RETURN(const data::Schema schema, data::inspect(spec));
    spec.categorical = schema.categorical;
  }
  SR_ASSIGN_OR_RETURN(spec.files, files_of(format, patterns));
  spec.shuffle_rows = 0;
  spec.negatives = {};
  SR_RETURN_IF_ERROR(data::inspect(spec).status());
  return std::optional<data::DataSpec>(std::move(spec));
}

namespace {

/// What rows teach, and how much each counts.
void add_labels(CLI::App* command, TrainArguments* a, const char* group) {
  command
      ->add_option("--label", a->label,
                   "tables: column of the label, 0 or 1; or what makes it 1, as in 'rating>=4'")
      ->type_name("COLUMN[OP VALUE]")
      ->group(group);
  command->add_option("--positive", a->positive, "tables: the label that is 1; others are 0")
      ->type_name("VALUE")
      ->group(group);
  command->add_option("--weight", a->weight, "tables: column that says how much a row counts")
      ->type_name("COLUMN")
      ->group(group);
  command
      ->add_option("--targets", a->targets,
                   "tables: columns of more labels, for models of several (mmoe)")
      ->type_name("COLUMN,...")
      ->group(group);
  command
      ->add_option("--class-weight", a->class_weights,
                   "tables: what the rows of a label count, as in '1=5'; may be given again")
      ->type_name("LABEL=X")
      ->default_str("")
      ->group(group);
  command
      ->add_option("--negatives", a->negatives,
                   "tables: behind each training row with a label above 0 so many that did not "
                   "happen, with the label 0 and another value of the column: one of rows shortly "
                   "before (popularity), or any token of its vocabulary (uniform), as in "
                   "'item=4:sampler=uniform'")
      ->type_name("COLUMN=N[:sampler=NAME]")
      ->group(group);
  command
      ->add_option("--group", a->group,
                   "tables: column of the query that a row is of, for --loss pairwise_logistic")
      ->type_name("COLUMN")
      ->group(group);
}

/// What a model is given of the columns of a file.
void add_columns(CLI::App* command, TrainArguments* a, const char* group) {
  command
      ->add_option("--numeric", a->numeric, "tables: columns taken as numbers, as in 'age,price'")
      ->type_name("COLUMN,...")
      ->group(group);
  one_of(
      command->add_option("--numeric-transform", a->numeric_transform,
                          "tables: what a model sees of numeric columns; auto looks at the first "
                          "rows: log1p where a few numbers are far above the others, and mean 0 "
                          "and deviation 1"),
      {"auto", "none", "log1p", "standard", "log1p_standard", "minmax", "quantile"})
      ->group(group);
  command
      ->add_option("--categorical", a->categorical,
                   "tables: columns taken as categories (default: all others)")
      ->type_name("COLUMN,...")
      ->group(group);
  command
      ->add_option("--default", a->defaults,
                   "tables: what an empty cell of a column counts as; may be given again (numeric: "
                   "the mean; categorical: empty text)")
      ->type_name("COLUMN=VALUE")
      ->default_str("")
      ->group(group);
  command
      ->add_option(
          "--multi-hot", a->multi_hot,
          "tables: a categorical column with several values in a cell: its name, what stands "
          "between them, the most that count, as in 'genres:|:8'; may be given again")
      ->type_name("COLUMN:CHAR:N")
      ->default_str("")
      ->group(group);
  command
      ->add_option(
          "--vocabulary", a->vocabularies,
          "tables: a categorical column is numbered by the tokens of a file, one a line, or "
          "(auto) by those of the first rows, the most frequent first; max: the most "
          "numbers; oov: how many of them are for what is no token; may be given again")
      ->type_name("COLUMN[=FILE|auto][:max=N][:oov=K]")
      ->default_str("")
      ->group(group);
  command
      ->add_option(
          "--sequence", a->sequences,
          "tables: a column of several values in an order, an input of its own: what stands "
          "between them, the most that count, pre or post, and the categorical column "
          "whose ids they have, as in 'history:|:50:truncating=pre:like=item'; may be "
          "given again")
      ->type_name("COLUMN:CHAR:N[:padding=P][:truncating=P][:like=COLUMN]")
      ->default_str("")
      ->group(group);
  one_of(command->add_option("--hash", a->hash,
                             "tables: how texts are hashed; farmhash: as Keras' Hashing does"),
         {"xxh3", "farmhash"})
      ->group(group);
  command
      ->add_option(
          "--buckets", a->buckets,
          "tables: numbers as categories, in so many buckets of as many rows, as in 'age=10'")
      ->type_name("COLUMN=N,...")
      ->group(group);
  command
      ->add_option("--cross", a->crosses,
                   "tables: categorical or bucketized columns together are a category too, as in "
                   "'city*device'")
      ->type_name("COLUMN*COLUMN,...")
      ->group(group);
  command
      ->add_option("--features", a->features,
                   "tables: a file that says all of this of each column; sidereal inspect proposes "
                   "one")
      ->type_name("FILE")
      ->group(group);
}

}  // namespace

void add_data_options(CLI::App* command, TrainArguments* a) {
  const char* group = "Data";
  command
      ->add_option("--data", a->data,
                   "training files, here or elsewhere (s3://, http://); patterns as in '*.tsv.gz'")
      ->required()
      ->type_name("FILE")
      ->default_str("")
      ->group(group);
  command->add_option("--valid", a->valid, "files evaluated after each epoch")
      ->type_name("FILE")
      ->default_str("")
      ->group(group);
  command->add_option("--test", a->test, "files evaluated at the end")
      ->type_name("FILE")
      ->default_str("")
      ->group(group);
  command
      ->add_option("--metrics-by", a->metrics_by,
                   "a categorical column, such as of users: --valid and --test are judged within "
                   "the rows of each value, too (grouped AUC, NDCG)")
      ->type_name("COLUMN")
      ->group(group);
  one_of(command->add_option("--format", a->format,
                             "criteo: label, 13 integers, 26 categories, tabs, no header; libsvm: "
                             "label index:value ...; the others are tables, of which csv stands "
                             "for what names of files say: " +
                                 table_endings()),
         formats())
      ->group(group);
  add_labels(command, a, group);
  add_columns(command, a, group);
  command->add_option("--delimiter", a->delimiter, "csv: character between columns, or tab")
      ->type_name("CHAR")
      ->group(group);
  whole(command->add_option("--hash-buckets", a->hash_buckets,
                            "ids per categorical column; values are hashed into them"),
        1, kLarge)
      ->group(group);
  whole(command->add_option("--id-space", a->id_space,
                            "values are ids below N in one space of all columns, nothing is "
                            "hashed (0: hash)"),
        0, kLarge)
      ->group(group);
  one_of(command->add_option("--bad-rows", a->bad_rows, "what to do with a row that is malformed"),
         {"fail", "skip"})
      ->group(group);
  whole(command->add_option("--shuffle-rows", a->shuffle_rows,
                            "rows held in memory to shuffle training data (0: in file order)"),
        0, kLarge)
      ->group(group);
}

}  // namespace sidereal::cli
