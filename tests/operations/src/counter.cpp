// Counts the operations that a process asks of libtorch itself: not those inside of others, and no views.
// A step begins with an embedding. At exit it writes the operations of each step to the file
// TANDEM_OPERATIONS, one step per line: name=count, separated by spaces.
#include <ATen/record_function.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace {

// Operations that return another view of the same memory, or its sizes.
const std::unordered_set<std::string_view> VIEWS = {
    "aten::alias",  "aten::as_strided", "aten::chunk",   "aten::detach",    "aten::expand",    "aten::flatten", "aten::narrow",
    "aten::permute", "aten::reshape",   "aten::select",  "aten::size",      "aten::slice",     "aten::split",   "aten::squeeze",
    "aten::t",      "aten::transpose",  "aten::unbind",  "aten::unflatten", "aten::unsqueeze", "aten::view",    "aten::view_as"};

using Step = std::map<std::string, long>;

struct Record {
  std::mutex mutex;
  std::vector<Step> steps = {Step()};
};

// Never freed: other threads may run until the end.
Record* record = nullptr;
thread_local int depth = 0;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  if (depth++ > 0) return nullptr;
  const std::string_view name = function.name();
  if (VIEWS.count(name) > 0) return nullptr;
  const std::lock_guard lock(record->mutex);
  if (name == "aten::embedding") record->steps.emplace_back();
  ++record->steps.back()[std::string(name)];
  return nullptr;
}

void end(const at::RecordFunction&, at::ObserverContext*) { --depth; }

void write() {
  const std::lock_guard lock(record->mutex);
  std::ofstream file(std::getenv("TANDEM_OPERATIONS"));
  for (const Step& step : record->steps) {
    for (const auto& [name, count] : step) file << name << '=' << count << ' ';
    file << '\n';
  }
}

__attribute__((constructor)) void start() {
  if (std::getenv("TANDEM_OPERATIONS") == nullptr) return;
  record = new Record;
  at::addGlobalCallback(at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}));
  std::atexit(write);
}

}  // namespace
