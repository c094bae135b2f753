#include "runner/base/ascii_name.h"

#include "tests/doctest.h"

using trainrun::ascii_name;

TEST_CASE("a name in ASCII: letters lose their accents, any other character is one sign") {
  CHECK(ascii_name("Umsätze 2024", "", '_') == "Umsatze_2024");
  CHECK(ascii_name("Umsa\u0308tze", "", '_') == "Umsatze");  // the accent as a character of its own
  CHECK(ascii_name("größe", "", '_') == "gro_e");
  CHECK(ascii_name("売上 v1.2", ".", '-') == "---v1.2");
  CHECK(ascii_name("f1/Ça va", "/ ", '_') == "f1/Ca va");
  CHECK(ascii_name("a\xff-b", "-", '_') == "a_-b");  // no UTF-8
  CHECK(ascii_name("", "", '_').empty());
}
