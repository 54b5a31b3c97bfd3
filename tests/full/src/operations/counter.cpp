// Counts the operations that a process asks of libtorch itself: not those inside of others, and no views. A
// reshape that cannot be a view counts as `copy`.
// Copies between host and device are named so, also on a CPU: `upload` makes a tensor of numbers of the
// host, `download` asks for a tensor on another device. A step begins with an embedding. At exit it writes the operations of each step to the file
// TANDEM_OPERATIONS, one step per line: name=count, separated by spaces. The name of a product or of an
// embedding is followed by its number of rows: name[rows].
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
// True inside of a reshape that the process asked for.
thread_local bool reshapes = false;

// Returns true if the argument of this index is given.
bool is_given(const at::RecordFunction& function, std::size_t index) {
  const auto inputs = function.inputs();
  return index < inputs.size() && !inputs[index].isNone();
}

// Returns the rows of a product, those of its first argument, or of an embedding, its number of ids.
std::string rows_of(const at::RecordFunction& function, std::string_view name) {
  const bool is_embedding = name == "aten::embedding";
  if (!is_embedding && name != "aten::linear" && name != "aten::_grouped_mm") return "";
  const auto inputs = function.inputs();
  const std::size_t index = is_embedding ? 1 : 0;
  if (inputs.size() <= index || !inputs[index].isTensor()) return "";
  const at::Tensor rows = inputs[index].toTensor();
  return "[" + std::to_string(is_embedding ? rows.numel() : rows.size(0)) + "]";
}

std::string_view name_of(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  // tch creates tensors of the host's numbers without a device, and all others with one.
  if (name == "aten::zeros" && !is_given(function, 3)) return "upload";
  // A conversion has a dtype. Without it, or as the overload `device`, this is a copy to a device.
  const auto operation = function.operator_name();
  const bool names_device = operation.has_value() && operation->overload_name == "device";
  if (name == "aten::to" && (names_device || !is_given(function, 1))) return "download";
  return name;
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const bool copies = reshapes && depth == 1 && std::string_view(function.name()) == "aten::clone";
  if (depth++ > 0 && !copies) return nullptr;
  const std::string_view name = copies ? "copy" : name_of(function);
  if (!copies) reshapes = name == "aten::reshape";
  if (VIEWS.count(name) > 0) return nullptr;
  const std::lock_guard lock(record->mutex);
  if (name == "aten::embedding") record->steps.emplace_back();
  ++record->steps.back()[std::string(name) + rows_of(function, name)];
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
  at::addGlobalCallback(at::RecordFunctionCallback(begin, end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  std::atexit(write);
}

}  // namespace
