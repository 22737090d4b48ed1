#!/usr/bin/env bash
# GKE cluster gpu-benchmark-cluster in us-central1-a, project my-project-1
# The commands of the plan, in order. `gputax deploy` also checks each step, resumes, and counts the cost.
set -euo pipefail

# Google APIs enabled
gcloud services enable artifactregistry.googleapis.com container.googleapis.com --project=my-project-1

# Image repository gputax
gcloud artifacts repositories create gputax --location=us-central1 --repository-format=docker --project=my-project-1

# Docker image build
docker build --platform=linux/amd64 --target=cuda --file=docker/Dockerfile --tag=us-central1-docker.pkg.dev/my-project-1/gputax/gputax:1.2.3 .

# Docker image push
gcloud auth configure-docker us-central1-docker.pkg.dev --quiet --project=my-project-1
docker push us-central1-docker.pkg.dev/my-project-1/gputax/gputax:1.2.3

# GKE cluster creation
gcloud container clusters create gpu-benchmark-cluster --zone=us-central1-a --machine-type=e2-standard-2 --num-nodes=1 --disk-size=50 --release-channel=regular --labels=managed-by=gputax --quiet --project=my-project-1

# GPU node pool, 0 to 2 nodes, with GKE's own NVIDIA driver installer
gcloud container node-pools create gpu --cluster=gpu-benchmark-cluster --zone=us-central1-a --machine-type=n1-standard-4 --accelerator=type=nvidia-tesla-t4,count=1,gpu-driver-version=default --disk-size=100 --num-nodes=0 --enable-autoscaling --min-nodes=0 --max-nodes=2 --spot --quiet --project=my-project-1

# Cluster credentials
KUBECONFIG=results/baseline/deployment/kubeconfig gcloud container clusters get-credentials gpu-benchmark-cluster --zone=us-central1-a --project=my-project-1

# Namespace gputax
KUBECONFIG=results/baseline/deployment/kubeconfig kubectl get namespace gputax || KUBECONFIG=results/baseline/deployment/kubeconfig kubectl apply -f results/baseline/deployment/manifests/10-namespace.yaml

# Benchmark job deployment
KUBECONFIG=results/baseline/deployment/kubeconfig kubectl apply -f results/baseline/deployment/manifests/20-job.yaml

# Benchmark run (standard suite, resnet50)
KUBECONFIG=results/baseline/deployment/kubeconfig kubectl -n gputax wait --for=condition=complete job/gpu-benchmark-baseline --timeout=8400s

# Results collection
KUBECONFIG=results/baseline/deployment/kubeconfig kubectl -n gputax logs job/gpu-benchmark-baseline > results/baseline/pod.log

# To remove it all:
# gcloud container clusters delete gpu-benchmark-cluster --zone=us-central1-a --quiet --project=my-project-1
# gcloud artifacts repositories delete gputax --location=us-central1 --quiet --project=my-project-1
