#include "registry/tensors/files/pickle.h"

#include <bit>
#include <unordered_map>
#include <utility>

namespace trainrun {
namespace {

using Id = Pickle::Id;
using Kind = Pickle::Kind;
using Node = Pickle::Node;

// A few bytes can ask for much: what a pickle may hold is bounded, so that it takes 1 GB of memory at most.
constexpr size_t kMostNodes = size_t{4} << 20;
constexpr size_t kMostNameBytes = size_t{64} << 20;

/// Python's pickletools.opcodes, those that protocols 2 to 5 write.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kDict = 'd',
  kEmptyDict = '}',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kList = 'l',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kNewObjEx = 0x92,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

class Parser {
 public:
  explicit Parser(std::string_view bytes) : bytes_(bytes) {
    none_ = add({});
    for (int64_t value : {0, 1}) add({.kind = Kind::kBool, .integer = value});
  }

  Pickle parse() {
    while (step(read<uint8_t>())) {
    }
    pickle_.root = pop();
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError("byte " + std::to_string(position_) + " of the pickle: " + what);
  }

  // ---- bytes
  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - position_) fail("it ends too early");
    const std::string_view taken = bytes_.substr(position_, size);
    position_ += size;
    return taken;
  }
  template <class T>
  T read() {
    T value;
    take(sizeof(T)).copy(reinterpret_cast<char*>(&value), sizeof(T));
    return value;
  }
  std::string line() {
    const size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) fail("it ends too early");
    std::string text(take(end - position_));
    ++position_;
    return text;
  }

  // ---- the stack
  Id add(Node node) {
    if (pickle_.nodes.size() == kMostNodes) fail("it holds more than 4 million values");
    pickle_.nodes.push_back(std::move(node));
    return static_cast<Id>(pickle_.nodes.size() - 1);
  }
  bool push(Id id) {
    if (stack_.size() == kMostNodes) fail("it puts more than 4 million values on top of each other");
    stack_.push_back(id);
    return true;
  }
  bool push(Node node) { return push(add(std::move(node))); }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Id pop() {
    if (stack_.size() <= floor()) fail("it takes more values than there are");
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }
  std::vector<Id> pop_many(size_t count) {
    if (stack_.size() - floor() < count) fail("it takes more values than there are");
    std::vector<Id> ids(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return ids;
  }
  std::vector<Id> pop_to_mark() {
    if (marks_.empty()) fail("it ends a group that was not begun");
    std::vector<Id> ids = pop_many(stack_.size() - marks_.back());
    marks_.pop_back();
    return ids;
  }
  Node& top() {
    if (stack_.size() <= floor()) fail("it takes more values than there are");
    return pickle_.nodes[stack_.back()];
  }

  // ---- what opcodes do
  bool collect(Kind kind, std::vector<Id> items) { return push({.kind = kind, .items = std::move(items)}); }

  bool integer_of(std::string_view digits) {  // little-endian, two's complement
    if (digits.size() > sizeof(int64_t)) return push({.kind = Kind::kOther, .text = "integer of more than 64 bits"});
    int64_t value = !digits.empty() && static_cast<int8_t>(digits.back()) < 0 ? -1 : 0;
    digits.copy(reinterpret_cast<char*>(&value), sizeof(value));
    return push({.kind = Kind::kInteger, .integer = value});
  }

  bool extend(const std::vector<Id>& items) {
    Node& target = top();
    if (target.kind != Kind::kList && target.kind != Kind::kSet && target.kind != Kind::kCall) {
      fail("it appends to something that is not a list");
    }
    if (target.kind != Kind::kCall) target.items.insert(target.items.end(), items.begin(), items.end());
    return true;
  }

  bool set_items(const std::vector<Id>& items) {
    Node& target = top();
    if (target.kind != Kind::kDict && target.kind != Kind::kCall) fail("it sets a key of something that is not a dict");
    if (items.size() % 2 != 0) fail("it sets a key without a value");
    for (size_t i = 0; i < items.size(); i += 2) target.entries.emplace_back(items[i], items[i + 1]);
    return true;
  }

  bool make_dict(const std::vector<Id>& items) {
    push({.kind = Kind::kDict});
    return set_items(items);
  }

  /// Names are copied: a pickle may have put together any number of them out of two long texts.
  bool global(const std::string& module, const std::string& name) {
    name_bytes_ += module.size() + name.size();
    if (name_bytes_ > kMostNameBytes) fail("its names of classes and functions take more than 64 MiB");
    return push({.kind = Kind::kGlobal, .text = module + "." + name});
  }

  bool stack_global() {
    const std::vector<Id> names = pop_many(2);
    for (const Id name : names) {
      if (pickle_[name].kind != Kind::kString) fail("the name of a global is not a string");
    }
    return global(pickle_[names[0]].text, pickle_[names[1]].text);
  }

  /// Writes down a call of the first value with the second; keyword arguments do not matter here.
  bool call(size_t values) {
    std::vector<Id> items = pop_many(values);
    items.resize(2);
    return collect(Kind::kCall, std::move(items));
  }

  bool put(uint32_t index) {
    top();
    if (memo_.size() == kMostNodes) fail("it notes more than 4 million values");
    memo_[index] = stack_.back();
    return true;
  }

  bool get(uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("it refers to a value that was not there before");
    return push(found->second);
  }

  bool begin_group() {
    if (marks_.size() == kMostNodes) fail("it begins more than 4 million groups");
    marks_.push_back(stack_.size());
    return true;
  }

  bool check_protocol(int protocol) {
    constexpr int kNewest = 5;
    if (protocol > kNewest) fail("its protocol is " + std::to_string(protocol) + "; known: up to 5");
    return true;
  }

  bool string_of(uint64_t size, Kind kind = Kind::kString) {
    return push({.kind = kind, .text = std::string(take(size))});
  }

  bool float_of(uint64_t big_endian) {
    return push({.kind = Kind::kFloat, .number = std::bit_cast<double>(__builtin_bswap64(big_endian))});
  }

  /// Carries out one opcode; false after the last.
  bool step(uint8_t opcode) {
    // clang-format off
    switch (opcode) {
      case kProto: return check_protocol(read<uint8_t>());
      case kFrame: return read<uint64_t>(), true;
      case kStop: return false;
      case kMark: return begin_group();
      case kPop: return pop(), true;
      case kPopMark: return pop_to_mark(), true;
      case kDup: return top(), push(stack_.back());
      case kBinPut: return put(read<uint8_t>());
      case kLongBinPut: return put(read<uint32_t>());
      case kMemoize: return put(static_cast<uint32_t>(memo_.size()));
      case kBinGet: return get(read<uint8_t>());
      case kLongBinGet: return get(read<uint32_t>());
      case kNone: return push(none_);
      case kNewFalse: return push(none_ + 1);
      case kNewTrue: return push(none_ + 2);
      case kBinInt: return push({.kind = Kind::kInteger, .integer = read<int32_t>()});
      case kBinInt1: return push({.kind = Kind::kInteger, .integer = read<uint8_t>()});
      case kBinInt2: return push({.kind = Kind::kInteger, .integer = read<uint16_t>()});
      case kLong1: return integer_of(take(read<uint8_t>()));
      case kLong4: return integer_of(take(read<uint32_t>()));
      case kBinFloat: return float_of(read<uint64_t>());
      case kShortBinString: return string_of(read<uint8_t>());
      case kBinString: return string_of(read<uint32_t>());
      case kShortBinUnicode: return string_of(read<uint8_t>());
      case kBinUnicode: return string_of(read<uint32_t>());
      case kBinUnicode8: return string_of(read<uint64_t>());
      case kShortBinBytes: return string_of(read<uint8_t>(), Kind::kBytes);
      case kBinBytes: return string_of(read<uint32_t>(), Kind::kBytes);
      case kBinBytes8: return string_of(read<uint64_t>(), Kind::kBytes);
      case kEmptyTuple: return collect(Kind::kTuple, {});
      case kTuple1: return collect(Kind::kTuple, pop_many(1));
      case kTuple2: return collect(Kind::kTuple, pop_many(2));
      case kTuple3: return collect(Kind::kTuple, pop_many(3));
      case kTuple: return collect(Kind::kTuple, pop_to_mark());
      case kEmptyList: return collect(Kind::kList, {});
      case kList: return collect(Kind::kList, pop_to_mark());
      case kEmptySet: return collect(Kind::kSet, {});
      case kFrozenSet: return collect(Kind::kSet, pop_to_mark());
      case kAppend: return extend(pop_many(1));
      case kAppends:
      case kAddItems: return extend(pop_to_mark());
      case kEmptyDict: return push({.kind = Kind::kDict});
      case kDict: return make_dict(pop_to_mark());
      case kSetItem: return set_items(pop_many(2));
      case kSetItems: return set_items(pop_to_mark());
      case kGlobal: return named_global();
      case kStackGlobal: return stack_global();
      case kReduce:
      case kNewObj: return call(2);
      case kNewObjEx: return call(3);
      case kBuild: return pop(), top(), true;  // attributes of an object: a state dict's are version numbers
      case kBinPersId: return collect(Kind::kPersistent, pop_many(1));
      default: fail("opcode " + std::to_string(opcode) + " is not known here");
    }
    // clang-format on
  }

  bool named_global() {
    const std::string module = line();
    return global(module, line());
  }

  std::string_view bytes_;
  size_t position_ = 0;
  Pickle pickle_;
  Id none_ = 0;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, Id> memo_;
  size_t name_bytes_ = 0;
};

}  // namespace

const Node* Pickle::find(const Node& dict, std::string_view key) const {
  const Node* found = nullptr;
  for (const auto& [name, value] : dict.entries) {
    if (nodes[name].kind == Kind::kString && nodes[name].text == key) found = &nodes[value];
  }
  return found;
}

std::string Pickle::callee(const Node& call) const {
  const bool named = call.kind == Kind::kCall && nodes[call.items[0]].kind == Kind::kGlobal;
  return named ? nodes[call.items[0]].text : "";
}

std::string Pickle::describe(const Node& node) const {
  switch (node.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInteger:
      return "an integer";
    case Kind::kFloat:
      return "a number";
    case Kind::kString:
      return "a string";
    case Kind::kBytes:
      return "bytes";
    case Kind::kList:
      return "a list";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kDict:
      return "a dict";
    case Kind::kSet:
      return "a set";
    case Kind::kGlobal:
      return node.text;
    case Kind::kPersistent:
      return "a storage";
    case Kind::kOther:
      return "an " + node.text;
    case Kind::kCall:
      break;
  }
  const std::string name = callee(node);
  if (name.starts_with("torch._utils._rebuild_")) return "a tensor";
  if (name == "collections.OrderedDict") return "a dict";
  return name.empty() ? "an object" : "a " + name;
}

Pickle parse_pickle(std::string_view bytes) { return Parser(bytes).parse(); }

}  // namespace trainrun
