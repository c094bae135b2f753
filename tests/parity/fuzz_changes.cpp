#include "tests/parity/fuzz_changes.h"

#include <nlohmann/json.hpp>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "registry/language/error.h"

namespace trainrun {

namespace {

using nlohmann::json;

constexpr size_t kMostContent = size_t{1}
                                << 20;  // what is longer is not changed further: small files are to be read fast

size_t below(size_t count, RandomStream& random) {
  return count == 0 ? 0 : static_cast<size_t>(random.integer(static_cast<int64_t>(count)));
}

template <class Item>
const Item& one_of(const std::vector<Item>& items, RandomStream& random) {
  return items[below(items.size(), random)];
}

// --- bytes

/// A number that headers find hard, in 1 to 8 bytes and either order of them; perhaps near the length of the file.
std::string hard_number(size_t length, RandomStream& random) {
  constexpr std::array<uint64_t, 14> kHard = {
      0,      1,          2,          0x7F,       0x80,       0xFF,       0x7FFF,
      0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x40000000, UINT64_MAX, 0x7FFFFFFFFFFFFFFF};
  uint64_t number = kHard[below(kHard.size(), random)];
  if (random.integer(4) == 0) number = length + static_cast<uint64_t>(random.integer(5)) - 2;
  std::string bytes;
  const size_t width = size_t{1} << random.integer(4);
  for (size_t i = 0; i < width; ++i) bytes += static_cast<char>(number >> (8 * i));
  if (random.integer(2) == 0) std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

/// Digits in the place of the digits that come next.
void change_digits(std::string& content, size_t at, RandomStream& random) {
  static const std::vector<std::string> numbers = {
      "0",    "-1",   "1",   "4294967296", "9223372036854775807",    "18446744073709551616", "1e308",
      "1e-9", "-0.0", "NaN", "0x7f",       "99999999999999999999999"};
  const size_t begin = content.find_first_of("0123456789", at);
  if (begin == std::string::npos) return;
  const size_t end = std::min(content.find_first_not_of("0123456789", begin), content.size());
  content.replace(begin, end - begin, one_of(numbers, random));
}

/// A text many times, sometimes with what ends it, as brackets do.
void nest(std::string& content, size_t at, RandomStream& random) {
  static const std::vector<std::pair<std::string, std::string>> brackets = {
      {"[", "]"},   {"{\"a\":", "}"}, {"(", ")"},    {"{% if 1 %}", "{% endif %}"},
      {"\"", "\""}, {"-", ""},        {"{a: ", "}"}, {"<", ">"}};
  static const std::vector<int64_t> depths = {3, 40, 110, 2000, 100000};
  const auto& [begin, end] = one_of(brackets, random);
  std::string nested;
  const int64_t depth = one_of(depths, random);
  for (int64_t i = 0; i < depth; ++i) nested += begin;
  nested += content.substr(at, below(20, random));
  for (int64_t i = 0; i < depth && random.integer(2) == 0; ++i) nested += end;
  content.insert(at, nested);
}

void change_bytes(std::string& content, const std::string& other, const std::vector<std::string>& words,
                  RandomStream& random) {
  const size_t at = below(content.size(), random);
  const auto length = static_cast<size_t>(1 + random.integer(random.integer(4) == 0 ? 600 : 40));
  switch (random.integer(words.empty() ? 11 : 13)) {
    case 0:
      if (!content.empty()) content[at] = static_cast<char>(content[at] ^ (1 << random.integer(8)));
      return;
    case 1:
      if (!content.empty()) content[at] = static_cast<char>(random.integer(256));
      return;
    case 2: {
      const std::string number = hard_number(content.size(), random);
      content.replace(at, number.size(), number);
      return;
    }
    case 3:
      content.erase(at, length);
      return;
    case 4:
      content.insert(at, content.substr(at, length));
      return;
    case 5:
      content.replace(at, length, other.substr(below(other.size(), random), length));
      return;
    case 6:
      return change_digits(content, at, random);
    case 7:  // two pieces change places
      if (at + 2 * length <= content.size()) {
        std::rotate(content.begin() + static_cast<std::ptrdiff_t>(at),
                    content.begin() + static_cast<std::ptrdiff_t>(at + length),
                    content.begin() + static_cast<std::ptrdiff_t>(at + 2 * length));
      }
      return;
    case 8:
      if (random.integer(8) == 0) return nest(content, at, random);  // else most would be too deep
      return;
    case 9:
      if (random.integer(8) == 0) content.resize(at);  // else most files would be cut off
      return;
    case 10:
      if (random.integer(8) == 0) {
        const std::string piece = content.substr(at, length);
        for (int64_t i = random.integer(3000); i > 0; --i) content.insert(at, piece);
      }
      return;
    default:
      content.replace(at, random.integer(2) == 0 ? 0 : length, one_of(words, random));
  }
}

// --- JSON

json deep_value(RandomStream& random) {
  json value = 1;
  for (int64_t depth = random.integer(200); depth > 0; --depth) {
    value = random.integer(2) == 0 ? json::array({std::move(value)}) : json::object({{"a", std::move(value)}});
  }
  return value;
}

/// Another value in the place of one: of another type, or one that is hard on its reader.
json hard_value(RandomStream& random) {
  static const std::vector<json> values = {nullptr,
                                           true,
                                           0,
                                           -1,
                                           1e300,
                                           -0.0,
                                           uint64_t{1} << 63,
                                           UINT64_MAX,
                                           std::numeric_limits<int64_t>::min(),
                                           std::numeric_limits<int32_t>::max(),
                                           1 << 20,
                                           "",
                                           "\u2581",
                                           "../../etc/passwd",
                                           "((a+)+)+[",
                                           json::array(),
                                           json::object(),
                                           json::array({1, "a"}),
                                           json::object({{"type", "Sequence"}}),
                                           json::object({{"content", "a"}}),
                                           std::string("a\0b", 3)};
  const int64_t how = random.integer(static_cast<int64_t>(values.size()) + 4);
  if (how == 0) return deep_value(random);
  if (how == 1) return std::string(static_cast<size_t>(random.integer(5000)), 'a');
  if (how < 4) return random.integer(300);
  return values[static_cast<size_t>(how - 4)];
}

/// A value somewhere in the document, each way down taken at random.
json* place_in(json& value, RandomStream& random) {
  json* place = &value;
  while (place->is_structured() && !place->empty() && random.integer(8) > 0) {
    auto child = place->begin();
    std::advance(child, random.integer(static_cast<int64_t>(place->size())));
    place = &*child;
  }
  return place;
}

void change_json(json& document, json& other, RandomStream& random) {
  json* place = place_in(document, random);
  const bool has_children = place->is_structured() && !place->empty();
  const int64_t how = random.integer(6);
  if (how == 0 && has_children) {
    auto child = place->begin();
    std::advance(child, random.integer(static_cast<int64_t>(place->size())));
    place->erase(child);
  } else if (how == 1) {
    *place = json(*place_in(other, random));
  } else if (how == 2) {
    json inner = *place_in(document, random);
    *place_in(document, random) = std::move(inner);
  } else if (how == 3 && place->is_object() && has_children) {  // another key
    auto child = place->begin();
    std::advance(child, random.integer(static_cast<int64_t>(place->size())));
    json value = *child;
    (*place)[random.integer(2) == 0 ? "" : child.key() + "x"] = std::move(value);
  } else if (how == 4 && place->is_array() && has_children) {
    place->push_back((*place)[below(place->size(), random)]);
  } else {
    *place = hard_value(random);
  }
}

/// False where the content is not JSON.
bool change_values(std::string& content, const std::string& other, RandomStream& random) {
  json document = json::parse(content, nullptr, false);
  if (document.is_discarded()) return false;
  json others = json::parse(other, nullptr, false);
  if (others.is_discarded()) others = document;
  for (int64_t i = 1 + random.integer(3); i > 0; --i) change_json(document, others, random);
  content = document.dump(-1, ' ', false, json::error_handler_t::replace);
  return true;
}

// --- lines

std::vector<std::string> lines_of(const std::string& content) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    lines.push_back(content.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// Changes the values of one line, or the order of lines. False where there are none.
bool change_lines(std::string& content, const std::string& other, RandomStream& random) {
  std::vector<std::string> lines = lines_of(content);
  std::vector<std::string> others = lines_of(other);
  if (lines.empty() || others.empty()) return false;
  std::string& line = lines[below(lines.size(), random)];
  const std::string& another = others[below(others.size(), random)];
  const int64_t how = random.integer(8);
  if (how == 0) {
    line.clear();
  } else if (how == 1) {
    line = another;
  } else if (how == 2) {
    std::swap(line, lines[below(lines.size(), random)]);
  } else if (!change_values(line, another, random)) {
    return false;
  }
  content.clear();
  for (const std::string& each : lines) content += each + "\n";
  return true;
}

// --- gzip

std::string through_zlib(const std::string& content, bool packs) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16;
  const int code = packs ? deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY)
                         : inflateInit2(&stream, kGzip);
  if (code != Z_OK) throw Error("zlib cannot be used: out of memory");
  std::string made(packs ? deflateBound(&stream, content.size()) : kMostContent, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(made.data());
  stream.avail_out = static_cast<uInt>(made.size());
  packs ? deflate(&stream, Z_FINISH) : inflate(&stream, Z_FINISH);
  made.resize(stream.total_out);
  packs ? deflateEnd(&stream) : inflateEnd(&stream);
  return made;
}

/// The seed with its content unpacked, and its name without ".gz"; what is not packed, as it is.
FuzzSeed unpacked(const FuzzSeed& seed) {
  if (!seed.name.ends_with(".gz")) return seed;
  return {seed.name.substr(0, seed.name.size() - 3), through_zlib(seed.content, false), seed.place};
}

}  // namespace

std::string changed(const FuzzSeed& seed, const FuzzSeed& other, const std::vector<std::string>& words,
                    RandomStream& random) {
  if (seed.name.ends_with(".gz") && random.integer(4) > 0) {
    return through_zlib(changed(unpacked(seed), unpacked(other), words, random), true);
  }
  std::string content = seed.content;
  const bool has_values = seed.name.ends_with(".json") && random.integer(4) > 0;
  if (has_values && change_values(content, other.content, random) && random.integer(8) > 0) return content;
  for (int64_t i = 1 + random.integer(4); i > 0 && content.size() < kMostContent; --i) {
    const bool in_lines = seed.name.ends_with(".jsonl") && random.integer(4) > 0;
    if (in_lines && change_lines(content, other.content, random)) continue;
    change_bytes(content, other.content, words, random);
  }
  return content;
}

}  // namespace trainrun
