# ik-llama-cpp-python 0.1.5 lacks a script that its build calls. The script fills in the file of the version.
file(WRITE ${CMAKE_SOURCE_DIR}/vendor/ik_llama.cpp/common/cmake/build-info-gen-cpp.cmake
    "set(BUILD_NUMBER 0)\nconfigure_file(common/build-info.cpp.in common/build-info.cpp)\n")
# Its libraries are installed into one folder, in which they look for each other.
set(CMAKE_INSTALL_RPATH "$ORIGIN")
