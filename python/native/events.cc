#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "sidereal/base/event_log.h"
#include "sidereal/sys/posix/event_file.h"

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

void bind_events(nb::module_& m) {
  const nb::class_<base::EventSinkRegistration> file(m, "EventFile",
                                                     "Written to as long as it is.");
  m.def(
      "emit_event",
      [](const std::string& task, const std::string& name,
         const std::vector<std::pair<std::string, base::EventField::Value>>& fields) {
        const base::EventKind* const kind = base::find_event(name);
        if (kind == nullptr) check(base::invalid_argument("there is no event '{}'", name));
        base::EventFields all;
        for (const auto& [field, value] : fields) all.emplace_back(field, value);
        // The log of a program of Python is Python's.
        const base::EventSource source{.task = task, .logs = false};
        without_gil([&] { base::emit(source, kind->event, all); });
      },
      "task"_a, "name"_a, "fields"_a, "Adds to the event log of this process.");
  m.def("recent_events", base::recent_events, "count"_a, "The latest, as lines of JSON.");
  m.def("write_events", sys::posix::write_events, "path"_a,
        "Writes each event of this process to a file, as long as the object lives.");
  m.def("event_file", sys::posix::event_file, "folder"_a, "member"_a,
        "Where a member of a cluster writes its events.");
}

}  // namespace sidereal::python
