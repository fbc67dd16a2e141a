# cmake -DFROM=page.html -DTO=page.cpp -DHEADER=x/page.h -DFUNCTION=ns::page -P EmbedText.cmake
# A source file with the function that returns the text. Cut into pieces: compilers may limit the
# length of one literal.
file(READ "${FROM}" text)
string(FIND "${text}" ")embedded\"" at)
if(NOT at EQUAL -1)
  message(FATAL_ERROR "${FROM}: it contains the mark that ends a piece: )embedded\"")
endif()
string(LENGTH "${text}" length)
set(pieces "")
set(begin 0)
while(begin LESS length)
  string(SUBSTRING "${text}" ${begin} 8000 piece)
  string(APPEND pieces "R\"embedded(${piece})embedded\"\n")
  math(EXPR begin "${begin} + 8000")
endwhile()
file(WRITE "${TO}" "#include \"${HEADER}\"\n\nstd::string_view ${FUNCTION}() {\n  return\n${pieces};\n}\n")
