#include "sidereal/resources/manager.h"

#include <algorithm>
#include <utility>

#include "sidereal/base/strings.h"

namespace sidereal::resources {

Resource::~Resource() = default;

Result<std::string> key_of(std::string_view container, std::string_view name) {
  if (container.find('|') != std::string_view::npos) {
    return base::invalid_argument("container '{}' must have no '|' in its name", container);
  }
  if (container.empty() && name.find('|') == std::string_view::npos) return std::string(name);
  std::string key(container);
  key += '|';
  key += name;
  return key;
}

Status Manager::check_kind(const Resource& found, std::string_view name, std::string_view kind) {
  if (found.kind() == kind) return {};
  return base::invalid_argument("'{}' is a {}, not a {}", name, found.kind(), kind);
}

Result<std::shared_ptr<Resource>> Manager::find_any(std::string_view name,
                                                    std::string_view kind) const {
  const std::lock_guard lock(mutex_);
  const auto it = resources_.find(std::string(name));
  if (it == resources_.end()) {
    return base::not_found("there is no {} '{}' here: it was never made, or is gone", kind, name);
  }
  SR_RETURN_IF_ERROR(check_kind(*it->second, name, kind));
  return it->second;
}

bool Manager::erase(std::string_view name) { return erase(name, nullptr); }

bool Manager::erase(std::string_view name, const Resource* resource) {
  return erase_if(name, [resource](const Resource& there) {
    return resource == nullptr || &there == resource;
  });
}

bool Manager::erase_unused(std::string_view name) {
  return erase_if(name, [](const Resource& there) { return there.arrival() == Arrival::kUnused; });
}

bool Manager::erase_if(std::string_view name, absl::FunctionRef<bool(const Resource&)> is_it) {
  std::shared_ptr<Resource> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto it = resources_.find(std::string(name));
    if (it == resources_.end() || !is_it(*it->second)) return false;
    gone = std::move(it->second);
    resources_.erase(it);
    ++forgotten_;
  }
  gone->cancel();
  changed();
  return true;
}

void Manager::erase_container(std::string_view container) {
  std::vector<std::shared_ptr<Resource>> gone;
  {
    const std::lock_guard lock(mutex_);
    ++forgotten_;
    for (auto it = resources_.begin(); it != resources_.end();) {
      const size_t bar = it->first.find('|');
      const size_t end = bar == std::string::npos ? 0 : bar;
      if (std::string_view(it->first).substr(0, end) == container) {
        gone.push_back(std::move(it->second));
        resources_.erase(it++);
      } else {
        ++it;
      }
    }
  }
  for (const std::shared_ptr<Resource>& resource : gone) resource->cancel();
  changed();
}

void Manager::clear() {
  absl::flat_hash_map<std::string, std::shared_ptr<Resource>> gone;
  {
    const std::lock_guard lock(mutex_);
    gone.swap(resources_);
    ++forgotten_;
  }
  for (auto& [name, resource] : gone) resource->cancel();
  changed();
}

std::vector<std::string> Manager::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [name, resource] : resources_) out.push_back(name);
  std::sort(out.begin(), out.end());
  return out;
}

int64_t Manager::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& [name, resource] : resources_) total += resource->bytes();
  return total;
}

void Manager::changed() {
  {
    const std::lock_guard lock(mutex_);
    ++changes_;
  }
  changed_.notify_all();
}

bool Manager::wait(uint64_t seen, std::chrono::nanoseconds limit) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return changes_ != seen; });
}

}  // namespace sidereal::resources
