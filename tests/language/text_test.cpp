// Forms of texts that are said once: hexadecimal digits, marks, lists, numbers.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "registry/language/hex.h"
#include "registry/language/text_forms.h"
#include "registry/language/text_number.h"
#include "registry/language/text_view.h"

namespace trainrun {
namespace {

TEST_CASE("bytes become hexadecimal digits and come back") {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(hex_of(std::string("\0\x0f\xff", 3)) == "000fff");
  CHECK(bytes_of_hex(hex_of(all)) == all);
  CHECK(bytes_of_hex("") == "");
  for (const char* other : {"0", "0g", "0F", " 0", "-1", "0x"}) CHECK(!bytes_of_hex(other));
}

TEST_CASE("a number has as many hexadecimal digits as asked for, or as it needs") {
  CHECK(hex_number(0, 0) == "");
  CHECK(hex_number(0x2f, 4) == "002f");
  CHECK(hex_number(0x1f600, 4, HexCase::kUpper) == "1F600");
  CHECK(number_of_hex("1F600") == 0x1f600);
  CHECK(number_of_hex("ffffffffffffffff") == ~uint64_t{0});
  for (const char* other : {"", "-1", "+1", "0x1", "1 ", "10000000000000000"}) CHECK(!number_of_hex(other));
}

TEST_CASE("a mark within a text is doubled") {
  CHECK(in_marks("say \"so\"", '"') == "\"say \"\"so\"\"\"");
  CHECK(in_marks("", '\'') == "''");
}

TEST_CASE("a text is shortened where a character ends") {
  CHECK(shortened("abc", 3) == "abc");
  CHECK(shortened("abcd", 3) == "abc…");
  CHECK(shortened("aäöü", 4) == "aä…");
  CHECK(shortened("äb", 1) == "…");
}

TEST_CASE("a list that is too long says so") {
  const std::vector<std::string> words = {"a", "b", "c"};
  CHECK(join_first(words, 3) == "a, b, c");
  CHECK(join_first(words, 2) == "a, b, …");
  CHECK(join_first(words, 2, LeftOut::kCount) == "a, b, … (3 in all)");
  CHECK(join_first({}, 2) == "");
}

TEST_CASE("a number is the whole text, and of its type") {
  CHECK(number_of<int64_t>("-12") == -12);
  CHECK(number_of<double>("1e3") == 1000);
  for (const char* other : {"", "+1", " 1", "1 ", "1.5", "9223372036854775808"}) CHECK(!number_of<int64_t>(other));
  CHECK(!number_of<double>("1e999"));
}

TEST_CASE("a number of a file may have a plus sign, and be beyond a double") {
  CHECK(data_number_of("+1.5") == 1.5);
  CHECK(data_number_of("1e999") == std::numeric_limits<double>::infinity());
  for (const char* other : {"", "+", "+-1", "++1", "1,5", "1x", " 1"}) CHECK(!data_number_of(other));
  CHECK(without_space(" \r\n\t a b \n") == "a b");
  CHECK(without_space(" \n").empty());
}

}  // namespace
}  // namespace trainrun
