#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "sidereal/base/strings.h"
#include "sidereal/ckpt/convert.h"
#include "sidereal/ckpt/formats.h"
#include "sidereal/cli/commands.h"
#include "sidereal/cli/table.h"
#include "sidereal/cli/tensor_text.h"

namespace sidereal::cli {

namespace {

using base::invalid_argument;
using ckpt::Slice;
using ckpt::StoredTensor;
using tensor::DType;
using tensor::Tensor;

constexpr const char* kFooter =
    R"(PATH is the prefix of a checkpoint (logs/model.ckpt-5), a .safetensors or .npz file, or a
folder: the newest checkpoint in it.

Examples:
  sidereal ckpt ls logs
  sidereal ckpt rows logs/model.ckpt-5 user_embedding 17 4711
  sidereal ckpt convert logs/model.ckpt-5 model.safetensors
  sidereal ckpt diff before after --tolerance 1e-6)";

/// What the subcommands were told, as it was written.
struct CkptArguments {
  std::string path = ".";
  std::string other;
  std::string name;
  std::vector<std::string> names;
  std::vector<int64_t> rows;
  std::string to;
  double tolerance = 0;
  int64_t limit = 1000;
  bool force = false;
};

struct Opened {
  ckpt::Found found;
  std::unique_ptr<ckpt::TensorReader> reader;
};

Result<Opened> open(const std::string& path) {
  Opened out;
  SR_ASSIGN_OR_RETURN(out.found, ckpt::find_checkpoint(path));
  SR_ASSIGN_OR_RETURN(out.reader, ckpt::open_tensors(out.found));
  return out;
}

/// What checkpoints of objects have behind the name of a variable.
constexpr std::string_view kOfObject = "/.ATTRIBUTES/VARIABLE_VALUE";

/// The tensor, also by the name of the object whose value it is; or kNotFound with those whose
/// names have the name in them.
Result<const StoredTensor*> find(const Opened& opened, const std::string& name) {
  for (const std::string& one : {name, name + std::string(kOfObject)}) {
    const StoredTensor* stored = opened.reader->find(one);
    if (stored != nullptr) return stored;
  }
  constexpr size_t kShown = 10;
  std::vector<std::string> like;
  for (const StoredTensor& one : opened.reader->list()) {
    if (like.size() < kShown && one.name.find(name) != std::string::npos) like.push_back(one.name);
  }
  return base::not_found("{}: there is no tensor '{}'{}; see sidereal ckpt ls", opened.found.path,
                         name, like.empty() ? "" : "; is it " + base::join(like, " or ") + "?");
}

std::string type_text(const StoredTensor& stored) {
  return stored.dtype == DType::kInvalid ? "(unknown)" : std::string(name_of(stored.dtype));
}

Status list(const CkptArguments& a) {
  SR_ASSIGN_OR_RETURN(const Opened opened, open(a.path));
  std::vector<std::vector<std::string>> rows;
  double bytes = 0;
  for (const StoredTensor& stored : opened.reader->list()) {
    const bool is_known = stored.dtype != DType::kInvalid && stored.dtype != DType::kString;
    const double size = static_cast<double>(stored.shape.num_elements()) *
                        static_cast<double>(tensor::size_of(stored.dtype));
    if (is_known) bytes += size;
    rows.push_back({base::message_text(stored.name, 200), type_text(stored),
                    stored.shape.to_string(), is_known ? base::human_bytes(size) : "-",
                    std::to_string(ckpt::pieces_of(stored).size())});
  }
  fmt::print("{} ({})\n{}{} tensors, {}\n", opened.found.path, name_of(opened.found.format),
             format_table({"tensor", "dtype", "shape", "size", "slices"}, rows), rows.size(),
             base::human_bytes(bytes));
  return {};
}

Status print_tensor(const CkptArguments& a) {
  SR_ASSIGN_OR_RETURN(const Opened opened, open(a.path));
  SR_ASSIGN_OR_RETURN(const StoredTensor* stored, find(opened, a.name));
  fmt::print("{}: {}{}\n", stored->name, type_text(*stored), stored->shape.to_string());
  for (const Slice& slice : stored->slices) {
    fmt::print("slice {}\n", ckpt::format_slice(slice, stored->shape));
  }
  // The rows that are shown are read, and no others.
  Slice part = ckpt::whole_slice(stored->shape);
  const int64_t elements = stored->shape.num_elements();
  const int64_t shown = a.limit == 0 ? elements : std::min(a.limit, elements);
  if (!part.empty() && shown < elements) {
    const int64_t row = std::max<int64_t>(elements / part[0].count, 1);
    part[0].count = (shown + row - 1) / row;
  }
  SR_ASSIGN_OR_RETURN(const Tensor values, shown == elements
                                               ? opened.reader->read(stored->name)
                                               : opened.reader->read(stored->name, part));
  const int64_t width = stored->shape.rank() > 0 ? stored->shape.dim(-1) : 1;
  for (int64_t i = 0; i < shown; i += width) {
    fmt::print("{}\n", elements_text(values, i, std::min(width, shown - i)));
  }
  if (shown < elements) fmt::print("... and {} more; --limit 0 shows all\n", elements - shown);
  return {};
}

/// A table and the tensors beside it that have as many rows: slots of optimizers.
std::vector<const StoredTensor*> with_slots(const Opened& opened, const StoredTensor& table) {
  std::vector<const StoredTensor*> out = {&table};
  std::string_view name = table.name;
  if (name.ends_with(kOfObject)) name.remove_suffix(kOfObject.size());
  const std::string prefix = std::string(name) + "/";
  for (const StoredTensor& one : opened.reader->list()) {
    if (one.name != table.name && one.name.starts_with(prefix) && one.shape.rank() > 0 &&
        one.shape.dim(0) == table.shape.dim(0) && one.dtype != DType::kInvalid) {
      out.push_back(&one);
    }
  }
  return out;
}

Status print_rows(const CkptArguments& a) {
  SR_ASSIGN_OR_RETURN(const Opened opened, open(a.path));
  SR_ASSIGN_OR_RETURN(const StoredTensor* table, find(opened, a.name));
  if (table->shape.rank() == 0) return invalid_argument("{} is a scalar: see cat", a.name);
  for (const int64_t row : a.rows) {
    if (row >= 0 && row < table->shape.dim(0)) continue;
    return base::out_of_range("row {} is none of {}, whose shape is {}", row, a.name,
                              table->shape.to_string());
  }
  for (const int64_t row : a.rows) {
    fmt::print("row {}\n", row);
    for (const StoredTensor* stored : with_slots(opened, *table)) {
      Slice part = ckpt::whole_slice(stored->shape);
      part[0] = {.start = row, .count = 1};
      SR_ASSIGN_OR_RETURN(const Tensor values, opened.reader->read(stored->name, part));
      fmt::print("  {}: {}\n", stored->name, elements_text(values, 0, values.num_elements()));
    }
  }
  return {};
}

Status diff(const CkptArguments& a) {
  SR_ASSIGN_OR_RETURN(const Opened left, open(a.path));
  SR_ASSIGN_OR_RETURN(const Opened right, open(a.other));
  SR_ASSIGN_OR_RETURN(const auto differences,
                      ckpt::compare(left.reader.get(), right.reader.get(), a.tolerance));
  for (const ckpt::Difference& one : differences) fmt::print("{}: {}\n", one.name, one.how);
  if (differences.empty()) {
    fmt::print("{} tensors are equal\n", left.reader->list().size());
    return {};
  }
  return base::failed_precondition("{} and {} differ in {} tensors", left.found.path,
                                   right.found.path, differences.size());
}

Status verify(const CkptArguments& a) {
  SR_ASSIGN_OR_RETURN(const Opened opened, open(a.path));
  size_t checked = 0;
  size_t wrong = 0;
  for (const StoredTensor& stored : opened.reader->list()) {
    if (stored.dtype == DType::kInvalid) {
      fmt::print("{}: not checked: a dtype that Sidereal does not have\n", stored.name);
      continue;
    }
    const Status status = opened.reader->verify(stored.name);
    ++checked;
    if (status.ok()) continue;
    ++wrong;
    fmt::print("{}: {}: {}\n", stored.name, base::code_name(status.code()),
               base::message_of(status));
  }
  if (wrong > 0) {
    return base::data_loss("{}: {} of {} tensors cannot be read", opened.found.path, wrong,
                           checked);
  }
  fmt::print(
      "{} ({}): {} tensors are whole{}\n", opened.found.path, name_of(opened.found.format), checked,
      opened.found.format == ckpt::Format::kSafetensors ? " (the format has no checksums)" : "");
  return {};
}

Result<ckpt::Format> target_format(const CkptArguments& a) {
  if (!a.to.empty()) return ckpt::format_from_name(a.to);
  if (a.other.ends_with(".safetensors")) return ckpt::Format::kSafetensors;
  if (a.other.ends_with(".npz")) return ckpt::Format::kNpz;
  return invalid_argument("which format is {} to have? Say --to {}", a.other,
                          fmt::join(ckpt::format_names(), ", --to "));
}

Status convert(const CkptArguments& a) {
  SR_ASSIGN_OR_RETURN(const ckpt::Format to, target_format(a));
  SR_ASSIGN_OR_RETURN(const Opened from, open(a.path));
  if (!a.force && ckpt::find_checkpoint(a.other).status().code() != StatusCode::kNotFound) {
    return base::already_exists("{} is there already; --force replaces it", a.other);
  }
  if (a.other == from.found.path) {
    return invalid_argument("a checkpoint cannot be written over itself: give another name");
  }
  SR_ASSIGN_OR_RETURN(const ckpt::Converted written, ckpt::convert(from.reader.get(), to, a.other));
  for (const std::string& one : written.left_out) fmt::print("left out: {}\n", one);
  fmt::print("{} ({}): {} tensors, {}\n", a.other, name_of(to), written.tensors,
             base::human_bytes(static_cast<double>(written.bytes)));
  return {};
}

using Work = Status (*)(const CkptArguments&);

/// A subcommand with its own arguments, of which PATH is the first.
CLI::App* add_work(CLI::App* ckpt, Action* action, const char* name, const char* about, Work work,
                   std::shared_ptr<CkptArguments>* arguments) {
  *arguments = std::make_shared<CkptArguments>();
  CLI::App* command = ckpt->add_subcommand(name, about);
  command->option_defaults()->always_capture_default();
  auto a = *arguments;
  command->final_callback([a, action, work] { *action = [a, work] { return work(*a); }; });
  return command;
}

}  // namespace

void add_ckpt(CLI::App* app, Action* action) {
  CLI::App* ckpt = app->add_subcommand("ckpt", "show, compare, check and convert checkpoints");
  ckpt->require_subcommand(1);
  ckpt->footer(kFooter);
  std::shared_ptr<CkptArguments> a;
  const char* path_help = "a prefix, a file or a folder";

  CLI::App* command = add_work(ckpt, action, "ls", "list the tensors", list, &a);
  command->add_option("path", a->path, path_help)->type_name("PATH");

  command = add_work(ckpt, action, "cat", "print a tensor", print_tensor, &a);
  command->add_option("path", a->path, path_help)->type_name("PATH")->required();
  command->add_option("name", a->name, "the tensor")->type_name("NAME")->required();
  command->add_option("--limit", a->limit, "elements that are shown at most; 0: all")
      ->check(CLI::NonNegativeNumber);

  command = add_work(ckpt, action, "rows",
                     "print rows of a table, and the same rows of what belongs to it, such as the "
                     "slots of an optimizer",
                     print_rows, &a);
  command->add_option("path", a->path, path_help)->type_name("PATH")->required();
  command->add_option("name", a->name, "the table")->type_name("NAME")->required();
  command->add_option("rows", a->rows, "numbers of rows")->type_name("KEY")->required();

  command =
      add_work(ckpt, action, "diff",
               "compare two checkpoints, of any formats; exit code 1 when they differ", diff, &a);
  command->add_option("a", a->path, path_help)->type_name("A")->required();
  command->add_option("b", a->other, path_help)->type_name("B")->required();
  command->add_option("--tolerance", a->tolerance, "numbers that are no further apart are equal")
      ->check(CLI::NonNegativeNumber);

  command = add_work(ckpt, action, "verify", "read everything and check all checksums", verify, &a);
  command->add_option("path", a->path, path_help)->type_name("PATH");

  command = add_work(ckpt, action, "convert", "write the tensors in another format", convert, &a);
  command->add_option("source", a->path, path_help)->type_name("SRC")->required();
  command->add_option("destination", a->other, "a prefix or a file")->type_name("DST")->required();
  command->add_option("--to", a->to, "the format; without it, the one that the end of DST says")
      ->check(CLI::IsMember(
          std::vector<std::string>(ckpt::format_names().begin(), ckpt::format_names().end())))
      ->default_str("");
  command->add_flag("--force", a->force, "replace what is there");
}

}  // namespace sidereal::cli
